package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Problems and printed configurations go to terminals, CI logs and tickets, so they must not show secrets. These
// patterns find credentials in the texts of keys that are no secrets: the user-info of a URL or an address, the query
// of a URL, and parameters that are named like a secret.
var (
	userInfo  = regexp.MustCompile(`(^|[\s"'=:,\[(])([A-Za-z][A-Za-z0-9+.-]*://)?[^\s"]*@`)
	urlQuery  = regexp.MustCompile(`\?[^\s"]*=[^\s"]*`)
	parameter = regexp.MustCompile(`(?i)(pass|passwd|password|pwd|secret|token|key)=('[^']*'|[^\s"&]+)`)
)

// hidden replaces credentials.
const hidden = "***"

// shortValue is the largest length of a short value of a variable. A short value is hidden only where a quoted text
// consists of nothing else: to replace each "1" would make texts unreadable and protect nothing.
const shortValue = 3

// filled is a text that problems must not show: a value that a variable put into a key, or credentials that the file
// has literally.
type filled struct {
	variable string
	value    string
	key      string // the key that has the value
	allowed  string // which texts the key allows
}

// remember records the parts of a text that problems must not show.
func (l *loader) remember(key, allowed, text string, variables []filled) {
	for _, v := range variables {
		if v.value == "" {
			continue
		}
		v.key, v.allowed = key, allowed
		l.filled = append(l.filled, v)
		for _, element := range splitList(v.value) { // a variable can contain a list; problems show single elements
			v.value = element
			l.filled = append(l.filled, v)
		}
	}
	if _, query, found := strings.Cut(text, "?"); found && strings.Contains(query, "=") {
		l.filled = append(l.filled, filled{value: query, key: key})
	}
	if _, address, scheme := strings.Cut(text, "://"); scheme {
		text = address
	}
	if at := strings.LastIndexByte(text, '@'); at > 0 {
		l.filled = append(l.filled, filled{value: text[:at], key: key})
	}
	// Longer values come first, since one may be a part of another.
	slices.SortStableFunc(l.filled, func(a, b filled) int { return cmp.Compare(len(b.value), len(a.value)) })
}

// describe formats the text of a problem. It hides values in the arguments only, because a word of the format may equal
// a value.
func (l *loader) describe(format string, args []any) string {
	shown := slices.Clone(args)
	for i, arg := range args {
		before := fmt.Sprint(arg)
		after := before
		for _, f := range l.filled {
			if after == f.value {
				after = f.name()
			}
			after = f.hide(after)
		}
		if after != before {
			shown[i] = after
		}
	}
	return fmt.Sprintf(format, shown...)
}

// mask removes from all problems the credentials and values of variables that describe has not hidden.
func (l *loader) mask() {
	for i := range l.problems {
		p := &l.problems[i]
		for _, f := range l.filled {
			if f.key == p.Key {
				p.Text = f.hide(p.Text)
			}
		}
		for _, f := range l.filled {
			if f.variable != "" && f.key == p.Key && f.shows(p.Text) {
				p.Text = fmt.Sprintf("the value of ${%s} is not accepted here: write another %s", f.variable, f.allowed)
			}
		}
		p.Text, p.Key = withoutCredentials(p.Text), withoutCredentials(p.Key)
	}
}

// name returns the text that replaces the value: ${VARIABLE}, or *** if the value is not from a variable.
func (f filled) name() string {
	if f.variable == "" {
		return hidden
	}
	return "${" + f.variable + "}"
}

// hide replaces the value in a text by its name. A value of at most shortValue bytes is replaced only where it is a
// whole quoted text.
func (f filled) hide(text string) string {
	shown := f.name()
	quoted := strconv.Quote(f.value)
	text = strings.ReplaceAll(text, quoted, shown)
	if len(f.value) > shortValue {
		text = strings.ReplaceAll(text, f.value, shown)
		// The value may be a part of a longer text that %q has quoted.
		text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], shown)
	}
	return text
}

// shows reports whether a text still has a word of the value after hide has replaced the whole value: the text may
// quote only a part of it.
func (f filled) shows(text string) bool {
	text = strings.ReplaceAll(text, "${"+f.variable+"}", "")
	for word := range strings.FieldsFuncSeq(f.value, func(r rune) bool { return !strings.ContainsRune(letters+digits, r) }) {
		if len(word) > shortValue && strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// exampleUserInfo is the end of the example URLs in problems.
const exampleUserInfo = "://user:password@"

// withoutCredentials removes possible credentials from the text of a problem.
func withoutCredentials(text string) string {
	text = userInfo.ReplaceAllStringFunc(text, func(match string) string {
		if strings.HasSuffix(match, exampleUserInfo) {
			return match
		}
		parts := userInfo.FindStringSubmatch(match)
		return parts[1] + parts[2] + hidden + "@"
	})
	text = urlQuery.ReplaceAllStringFunc(text, func(match string) string {
		if match == "?sslmode=verify-full" {
			return match
		}
		return "?" + hidden
	})
	return parameter.ReplaceAllString(text, "${1}="+hidden)
}

// WithoutPasswords returns a valid value without its credentials. A file URL has none.
func WithoutPasswords(value string) string {
	if strings.HasPrefix(value, "file:") {
		return value
	}
	if before, query, found := strings.Cut(value, "?"); found && strings.Contains(query, "=") {
		value = before + "?" + hidden
	}
	if at := strings.LastIndexByte(value, '@'); at > 0 {
		scheme, _, found := strings.Cut(value[:at], "://")
		if found {
			scheme += "://"
		} else {
			scheme = ""
		}
		value = scheme + hidden + value[at:]
	}
	return parameter.ReplaceAllString(value, "${1}="+hidden)
}

// unnamed removes the file name from an error of reading a secret file: operators sometimes write the secret itself
// instead of the name.
func unnamed(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("the file cannot be opened: %w: write the name of a file that holds the secret, seen from the folder of the configuration", pe.Err)
	}
	return err
}
