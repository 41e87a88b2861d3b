package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestScreen(t *testing.T) {
	const want = `\x1b[2J\u009b2J\u202e\u2066\u200b\u2028\u007f\x0d\x9b!` + "\n\tключ 🦀\n" + `\udb40\udc01`
	text := []byte(evil + "\n\tключ 🦀\n\U000e0001")
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		s := NewScreen(&out, nil)
		for part := range slices.Chunk(text, size) {
			if n, err := s.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Errorf("%d bytes at a time (-want +got):\n%s", size, d)
		}
	}
	var out bytes.Buffer
	s := NewScreen(&out, nil)
	if _, err := s.Write([]byte("x\xf0\x9f")); err != nil || s.Close() != nil || out.String() != `x\xf0\x9f` {
		t.Errorf("a character that never ends: %q", &out)
	}
}

// TestPrintf: a value cannot begin a new line or a new column. An error may have several lines, which are indented.
func TestPrintf(t *testing.T) {
	var out bytes.Buffer
	_, err := Printf(&out, "%s|%-4s|%q|%d|%v\n", "a\nb\tc", "x", "y", 7, errors.New("one\ntwo"))
	if err != nil || out.String() != "a\\nb\\tc|x   |\"y\"|7|one\n  two\n" {
		t.Errorf("%v %q", err, &out)
	}
}

// TestVisible_EveryCharacter expects that visible escapes exactly the control and format characters, except for line
// feeds and tabs, wherever they are in a text.
func TestVisible_EveryCharacter(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		text := "a" + string(r) + "é" + string(r)
		got, safe := string(visible([]byte(text))), !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r == '\n' || r == '\t'
		if safe != (got == text) || !safe && (strings.ContainsRune(got, r) || !strings.HasPrefix(got, `a\`) || !strings.Contains(got, `é\`)) {
			t.Errorf("%U: %q", r, got)
		}
	}
	for b := 0x80; b <= 0xff; b++ {
		if got, want := string(visible([]byte{'a', byte(b), 'a'})), fmt.Sprintf(`a\x%02xa`, b); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
