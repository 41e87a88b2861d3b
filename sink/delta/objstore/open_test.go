package objstore_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"sluice/classify"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

func canceledError(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx.Err()
}

func TestOpen(t *testing.T) {
	c := objstoretest.ServeS3(t, nil)
	dir := filepath.Join(t.TempDir(), "a b", "c")
	for _, url := range []string{
		"s3://bucket", "s3://bucket/", "s3://bucket/some/prefix", "s3://bucket/some/prefix/", "file://" + dir,
		"file://" + strings.ReplaceAll(dir, " ", "%20") + "/", "file://localhost" + dir, "mem://",
	} {
		s, err := objstore.Open(t.Context(), url, c)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := objstore.SelfTest(t.Context(), s); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if s, ok := s.(io.Closer); ok {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if m, err := filepath.Glob(dir); err != nil || len(m) != 1 {
		t.Errorf("%q was not made", dir)
	}
}

func TestOpenRefuses(t *testing.T) {
	for url, want := range map[string]string{
		"":                     "no scheme",
		"/data":                "no scheme",
		"bucket/prefix":        "no scheme",
		"s3:/bucket":           "no scheme",
		"s3://":                "name of the bucket is missing",
		"s3:///prefix":         "name of the bucket is missing",
		"s3://key:secret@b/p":  "credentials do not belong",
		"s3://bucket?x=y":      "options do not belong",
		"s3://bucket/a/../b":   "shortest form",
		"s3a://bucket":         "write s3:// instead of s3a://",
		"gs://bucket":          "gs is not supported",
		"file://data":          "not absolute",
		"file://host/data":     "not absolute",
		"file:///a%zz":         "invalid URL escape",
		"file:///proc/nothing": "open local store",
		"mem://name":           "has no name",
	} {
		_, err := objstore.Open(t.Context(), url, objstore.S3Config{Region: "us-east-1"})
		switch {
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v, want %q", url, err, want)
		case classify.Of(err) != classify.Fatal:
			t.Errorf("%v: %v", err, classify.Of(err))
		case errors.Is(err, objstore.ErrUnsafe):
			t.Error(err)
		}
	}
}
