package objstore

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"

	"sluice/classify"
)

// Open returns the store that a URL names: s3://bucket/prefix, file:///directory, or mem:// for tests, which is a new
// and empty store each time. c configures S3; its bucket and prefix come from the URL. If the store is an io.Closer,
// the caller must close it at the end. An invalid URL is a Fatal error.
func Open(ctx context.Context, storeURL string, c S3Config) (Store, error) {
	s, err := openURL(ctx, storeURL, c)
	if err != nil {
		return nil, fmt.Errorf("storage URL %q: %w", storeURL, err)
	}
	return s, nil
}

func openURL(ctx context.Context, storeURL string, c S3Config) (Store, error) {
	scheme, rest, found := strings.Cut(storeURL, "://")
	switch {
	case !found:
		return nil, badURL("no scheme: write s3://bucket/prefix or file:///directory")
	case strings.ContainsAny(rest, "?#"):
		return nil, badURL("options do not belong into it")
	}
	switch strings.ToLower(scheme) {
	case "s3":
		c.Bucket, c.Prefix, _ = strings.Cut(rest, "/")
		if strings.Contains(c.Bucket, "@") {
			return nil, badURL("credentials do not belong into it")
		}
		s, err := NewS3(ctx, c)
		if err != nil {
			return nil, err
		}
		return s, nil
	case "file":
		dir, err := directory(rest)
		if err != nil {
			return nil, err
		}
		s, err := NewLocal(ctx, dir)
		if err != nil {
			return nil, err
		}
		return s, nil
	case "mem":
		if rest != "" {
			return nil, badURL("a store in memory has no name")
		}
		return NewMem(), nil
	case "s3a", "s3n":
		return nil, badURL("write s3:// instead of %s://", scheme)
	}
	return nil, badURL("%s is not supported: use s3:// or file://", scheme)
}

// directory returns the path that a file URL names. rest is what follows file:// in the URL. The path must be absolute,
// and is percent-encoded in the URL.
func directory(rest string) (string, error) {
	dir, err := url.PathUnescape(strings.TrimPrefix(rest, "localhost"))
	switch {
	case err != nil:
		return "", badURL("%v", err)
	case !strings.HasPrefix(dir, "/"):
		return "", badURL("the directory is not absolute: write file:///directory with three slashes")
	case runtime.GOOS == "windows":
		dir = strings.TrimPrefix(dir, "/") // for file:///C:/directory on Windows
	}
	return filepath.FromSlash(dir), nil
}

func badURL(format string, args ...any) error {
	return classify.Mark(fmt.Errorf(format, args...), classify.Fatal)
}
