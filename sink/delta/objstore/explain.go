package objstore

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"
	"syscall"
	"unicode"
)

// Limits of texts, in characters.
const (
	maxWhat   = 400 // what an error says, without its hint
	maxKeyLen = 100 // a key in it
	maxName   = 63  // a bucket's name, as S3 limits it
	maxURL    = 80  // an endpoint
	maxCode   = 40  // a code, a region or the id of a request
)

// Explain returns what an error of a [Store] says and what to do about it, for people.
//
// what is one line of at most 400 characters without control characters. It holds no credentials, no signature and no
// query of a URL. hint names the key of the configuration, the permission or the machine to look at. It goes by the
// store's error code and by the types of errors, and is empty if they say nothing about what to do. The text of an error
// of S3 is what, and hint if there is one.
func Explain(err error) (what, hint string) {
	if e, ok := errors.AsType[explained](err); ok {
		return e.explain()
	}
	return oneLine(err.Error(), maxWhat), localHint(err)
}

// explained is an error that knows its hint.
type explained interface {
	error
	explain() (what, hint string)
	// cause is the same for failures that differ only in an id, a port or a time.
	cause() string
}

// hintOf returns the text of an error: what it says, then its hint.
func hintOf(what, hint string) string {
	if hint == "" {
		return what
	}
	return what + ": " + hint
}

// localHint returns what to do about an error of a store in a directory.
func localHint(err error) string {
	refused := errors.Is(err, ErrRefused) // other files than the store's may be missing or denied, too
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

// The parts of a URL that can carry a secret: a user with a password, and a query with a signature.
var (
	userinfo = regexp.MustCompile(`(\w+://)[^\s/"@]*@`)
	query    = regexp.MustCompile(`(\w+://[^\s"?]*)\?[^\s"]*`)
)

// oneLine returns text in one line of at most limit characters. Characters that end a line, steer a terminal or cannot be
// seen become a space, as do bytes that are no UTF-8, and several spaces become one.
func oneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text[:min(len(text), 64<<10)]) // the store may send megabytes
	text = query.ReplaceAllString(userinfo.ReplaceAllString(text, "$1"), "$1")
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > limit {
		return strings.TrimRight(string(runes[:limit-1]), " ") + "…"
	}
	return text
}

// shortKey returns a key or prefix of a key as texts show it. A long one loses its middle: its end tells the most.
func shortKey(key string) string {
	runes := []rune(oneLine(key, 8*maxKey))
	if len(runes) > maxKeyLen {
		const begin = maxKeyLen / 3
		return string(runes[:begin]) + "…" + string(runes[len(runes)-(maxKeyLen-begin-1):])
	}
	return string(runes)
}
