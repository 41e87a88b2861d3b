package objstore

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"
	"syscall"
	"unicode"
)

// Limits of the parts of an error text, in characters.
const (
	maxWhat   = 400 // the error text without its hint
	maxKeyLen = 100 // a key
	maxName   = 63  // a bucket name: 63 is the limit of S3 itself
	maxURL    = 80  // an endpoint
	maxCode   = 40  // a code, a region or a request id
)

// Explain returns the text of an error of a [Store] and what to do about it, for people.
//
// what is one line of at most 400 characters without control characters. It never holds credentials, a signature or
// the query of a URL. hint names the configuration key, the permission or the machine to check. It depends on the
// store's error code and on the types of errors, and is empty if they suggest no action. The text of an S3 error is
// what, followed by hint if there is one.
func Explain(err error) (what, hint string) {
	if e, ok := errors.AsType[explained](err); ok {
		return e.explain()
	}
	return oneLine(err.Error(), maxWhat), localHint(err)
}

// explained is an error with a hint.
type explained interface {
	error
	explain() (what, hint string)
	// cause returns equal texts for failures that differ only in an id, a port or a time.
	cause() string
}

// hintOf returns the text of an error with its hint.
func hintOf(what, hint string) string {
	if hint == "" {
		return what
	}
	return what + ": " + hint
}

// localHint returns what to do about an error of a store in a directory.
func localHint(err error) string {
	refused := errors.Is(err, ErrRefused) // true for a missing or denied file, which gets no hint if it is of another origin
	switch {
	case refused && errors.Is(err, syscall.EROFS):
		return "mount the file system of storage.url writable"
	case refused && errors.Is(err, fs.ErrPermission):
		return "let the user of this process read and write the directory of storage.url"
	case refused && (errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrNotExist)):
		return "let storage.url name a directory"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free space in the file system"
	}
	return ""
}

// The parts of a URL that can carry a secret: the user part with a password, and a query with a signature.
var (
	userinfo = regexp.MustCompile(`(\w+://)[^\s/"@]*@`)
	query    = regexp.MustCompile(`(\w+://[^\s"?]*)\?[^\s"]*`)
)

// oneLine returns text as one line of at most limit characters. Characters that end a line, control a terminal or are
// invisible become a space, as do bytes that are not UTF-8. Several spaces become one.
func oneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text[:min(len(text), 64<<10)]) // bounds the work: a store may send megabytes
	text = query.ReplaceAllString(userinfo.ReplaceAllString(text, "$1"), "$1")
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > limit {
		return strings.TrimRight(string(runes[:limit-1]), " ") + "…"
	}
	return text
}

// shortKey returns a key or prefix for error texts. It shortens a long one in the middle, because the end identifies
// it best.
func shortKey(key string) string {
	runes := []rune(oneLine(key, 8*maxKey))
	if len(runes) > maxKeyLen {
		const begin = maxKeyLen / 3
		return string(runes[:begin]) + "…" + string(runes[len(runes)-(maxKeyLen-begin-1):])
	}
	return string(runes)
}
