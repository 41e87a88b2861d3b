package tokens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"sluice/secure/reload"
)

// maxFile bounds the size of the file, in bytes.
const maxFile = 1 << 20

// Read reads and parses a file.
func Read(path string) (*Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var s *Set
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = errors.New("is larger than 1 MiB")
	}
	if err == nil {
		s, err = Parse(content)
	}
	if _, named := errors.AsType[*fs.PathError](err); err != nil && !named {
		err = fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	s.Open = info.Mode().Perm()&0o077 != 0
	return s, nil
}

// Open reads a file. The returned File rereads it while its Watch runs. It logs when the tokens change, and warns if
// the mode of the file gives rights to its group or to everyone.
func Open(ctx context.Context, path string, logger *slog.Logger) (*reload.File[Set], error) {
	return reload.Open(ctx, path, Read, func(ctx context.Context, before, now *Set) {
		if before != nil && !before.equal(now) {
			logger.InfoContext(ctx, "tokens file changed; using the new tokens", "file", path, "tokens", now.Len())
		}
		if now.Open && (before == nil || !before.Open) {
			logger.WarnContext(ctx, "the tokens file can be read by its group or by everyone: set its mode to 0600", "file", path)
		}
	}, logger)
}

// equal reports whether two sets have the same tokens in the same order.
func (s *Set) equal(other *Set) bool {
	return slices.EqualFunc(s.all, other.all, func(t, o Token) bool {
		return t.Name == o.Name && t.Role == o.Role && t.hash == o.hash && t.Expires.Equal(o.Expires)
	})
}
