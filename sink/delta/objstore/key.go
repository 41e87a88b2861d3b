package objstore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"sluice/classify"
)

// maxKey is S3's limit in bytes, including the prefix.
const maxKey = 1024

// checkKey validates a key by the rules of [Store].
func checkKey(key string) error {
	switch {
	case !fs.ValidPath(key) || key == ".":
		return refuse("key %q is not a relative path in its shortest form", key)
	case len(key) > maxKey:
		return refuse("key of %d bytes is longer than %d", len(key), maxKey)
	case !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return refuse("key %q has control characters, backslashes or invalid UTF-8", key)
	}
	return nil
}

// refuse returns the error of a request that no store would accept.
func refuse(format string, args ...any) error {
	return classify.Mark(fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...)), classify.Fatal)
}

// failed adds the operation and the key to err and keeps its class. An S3 error already has both.
func failed(k OpKind, key string, err error) error {
	if _, says := errors.AsType[*s3Error](err); says || err == nil {
		return err
	}
	return fmt.Errorf("%v %s: %w", k, shortKey(key), err)
}

// begin returns an error if the key is invalid, or if ctxErr, the error of ctx, is not nil. Every operation calls it
// before it sends a request.
func begin(ctxErr error, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if ctxErr != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, ctxErr)
	}
	return nil
}

var (
	errNotFound = classify.Mark(ErrNotFound, classify.Transient)
	errExists   = classify.Mark(ErrExists, classify.Transient)
)

// checkRange validates the offset of a Get.
func checkRange(off int64) error {
	if off < 0 {
		return refuse("offset %d is negative", off)
	}
	return nil
}
