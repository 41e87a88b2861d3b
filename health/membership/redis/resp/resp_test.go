package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

// wire is a connection from which the given bytes can be read.
type wire struct {
	net.Conn
	io.Reader
}

func (w wire) Read(p []byte) (int, error) { return w.Reader.Read(p) }
func (w wire) RemoteAddr() net.Addr       { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 6379} }

// read reads text through Check, once as a whole and once byte by byte. It fails the test unless both give the same
// error, and the same bytes if there is no error.
func read(t *testing.T, text string) (got string, err error) {
	t.Helper()
	whole, err := io.ReadAll(Check(wire{Reader: strings.NewReader(text)}))
	slow, slowErr := io.ReadAll(Check(wire{Reader: iotest.OneByteReader(strings.NewReader(text))}))
	if fmt.Sprint(err) != fmt.Sprint(slowErr) || err == nil && string(whole) != string(slow) || !strings.HasPrefix(text, string(slow)) {
		t.Errorf("%.50q: whole %.50q (%v), byte by byte %.50q (%v)", text, whole, err, slow, slowErr)
	}
	return string(whole), err
}

func TestConn_Replies(t *testing.T) {
	for _, text := range []string{
		"", "+OK\r\n", "+\r\n", "-ERR no\r\n", ":-7\r\n", "$3\r\nabc\r\n", "$0\r\n\r\n", "$-1\r\n", "*0\r\n", "*-1\r\n",
		"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "_\r\n", ",1.5\r\n", "#t\r\n", "(123456789012345678901234567890\r\n", "!5\r\nERR x\r\n",
		"=7\r\ntxt:abc\r\n", "%1\r\n+a\r\n~1\r\n+b\r\n", ">2\r\n+invalidate\r\n*0\r\n", "|1\r\n+ttl\r\n:3\r\n+value\r\n",
		"*2\r\n|1\r\n+a\r\n+b\r\n*1\r\n+c\r\n|0\r\n+d\r\n+next\r\n", "+a\r\n+b\r\n$1\r\n\n\r\n", "$4\r\n\r\n$9\r\n",
		"+half", "$5\r\nab", "*3\r\n+a\r\n", "$64", "*", "$-",
		"+" + strings.Repeat("x", maxLine-1) + "\r\n", fmt.Sprintf("$%d\r\n%s\r\n", maxBulk, strings.Repeat("x", maxBulk)),
		strings.Repeat("*1\r\n", maxDepth) + "+deep\r\n", fmt.Sprintf("*%d\r\n%s", maxElements, strings.Repeat(":1\r\n", maxElements)),
	} {
		if got, err := read(t, text); err != nil || got != text {
			t.Errorf("%.50q: %v", text, err)
		}
	}
}

// TestConn_Faults: the error says which fault the reply has, and all later reads return it as well.
func TestConn_Faults(t *testing.T) {
	bulk := fmt.Sprintf("$%d\r\n%s\r\n", maxBulk, strings.Repeat("x", maxBulk))
	for _, tt := range []struct {
		text string
		kind error
		want string
	}{
		{"$9223372036854775800\r\n", ErrTooLarge, "a bulk string of more than 65536 bytes"},
		{"$65537\r\n", ErrTooLarge, "a bulk string of more than 65536 bytes"},
		{"!9223372036854775800\r\n", ErrTooLarge, "a bulk string of more"},
		{"=65537\r\n", ErrTooLarge, "a bulk string of more"},
		{"*2147483647\r\n", ErrTooLarge, "an array of more than 65536 elements"},
		{"~65537\r\n", ErrTooLarge, "an array of more"},
		{">65537\r\n", ErrTooLarge, "an array of more"},
		{"%65537\r\n", ErrTooLarge, "a map of more than 65536 elements"},
		{"|65537\r\n", ErrTooLarge, "an attribute of more than 65536 elements"},
		{"*1\r\n*65537\r\n", ErrTooLarge, "an array of more"},
		{"+a\r\n$65537\r\n", ErrTooLarge, "a bulk string of more"},
		{strings.Repeat("*1\r\n", maxDepth+1), ErrTooLarge, "more than 8 deep"},
		{strings.Repeat("*2\r\n+a\r\n", maxDepth+1), ErrTooLarge, "more than 8 deep"},
		{"+" + strings.Repeat("x", maxLine+1), ErrTooLarge, "a line of more than 4096 bytes"},
		{"$" + strings.Repeat("0", maxLine+1), ErrTooLarge, "a line of more than 4096 bytes"},
		{"*300\r\n" + strings.Repeat(bulk, 300), ErrTooLarge, "more than 16 MiB"},
		{"*60000\r\n" + strings.Repeat("+"+strings.Repeat("x", 1000)+"\r\n", 60000), ErrTooLarge, "more than 16 MiB"},
		{strings.Repeat("*65536\r\n", 5), ErrTooLarge, "more than 16 MiB"},
		{strings.Repeat("%65536\r\n", 3), ErrTooLarge, "more than 16 MiB"},
		{"*-5\r\n", ErrMalformed, `'5' in the length of an array`},
		{"$-11\r\n", ErrMalformed, "in the length"},
		{"$--1\r\n", ErrMalformed, "in the length"},
		{"$-\r\n", ErrMalformed, "without a length"},
		{"$\r\n", ErrMalformed, "a bulk string without a length"},
		{"*\r\n", ErrMalformed, "an array without a length"},
		{"$?\r\n", ErrMalformed, "a bulk string without a length"},
		{"*?\r\n", ErrMalformed, "an array without a length"},
		{"%-1\r\n", ErrMalformed, "'-' in the length of a map"},
		{"$+5\r\n", ErrMalformed, "'+' in the length"},
		{"$1e3\r\n", ErrMalformed, "'e' in the length"},
		{"|0\r\n|0\r\n+a\r\n", ErrMalformed, "an attribute within another"},
		{"|1\r\n+a\r\n*1\r\n|0\r\n+b\r\n+c\r\n", ErrMalformed, "an attribute within another"},
		{"HTTP/1.1 400 Bad Request\r\n", ErrMalformed, "'H' where a value begins"},
		{";4\r\n", ErrMalformed, "';' where a value begins"},
		{".\r\n", ErrMalformed, "where a value begins"},
		{"\r\n", ErrMalformed, "where a value begins"},
		{"+a\n", ErrMalformed, "LF without CR"},
		{"+a\rb\r\n", ErrMalformed, "instead of LF"},
		{"$1\n", ErrMalformed, "in the length"},
		{"$1\r\nabc\r\n", ErrMalformed, "'b' instead of CR"},
		{"$1\r\na\r\r\n", ErrMalformed, "instead of LF after a bulk"},
	} {
		_, err := read(t, tt.text)
		if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) || !strings.HasSuffix(err.Error(), "from 192.0.2.7:6379") {
			t.Errorf("%.40q: %v, want %q", tt.text, err, tt.want)
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("%.40q: the error has %d bytes", tt.text, len(err.Error()))
		}
	}
	c := Check(wire{Reader: strings.NewReader("?+OK\r\n")})
	_, first := io.ReadAll(c)
	if _, again := io.ReadAll(c); first == nil || !errors.Is(again, ErrMalformed) {
		t.Errorf("the fault does not stay: %v, then %v", first, again)
	}
}

// TestConn_BoundIsOfOneReply: the bound limits each reply alone, not several together.
func TestConn_BoundIsOfOneReply(t *testing.T) {
	reply := fmt.Sprintf("*%d\r\n%s", maxElements, strings.Repeat("+"+strings.Repeat("x", 100)+"\r\n", maxElements))
	for _, replies := range []string{strings.Repeat(reply, 3), strings.Repeat("+"+strings.Repeat("x", 1000)+"\r\n", 20_000)} {
		if _, err := io.Copy(io.Discard, Check(wire{Reader: strings.NewReader(replies)})); err != nil {
			t.Error(err)
		}
	}
}

// TestConn_NoBytesOfAFault: the client gets no byte of a length that is greater than a bound.
func TestConn_NoBytesOfAFault(t *testing.T) {
	buffer := make([]byte, 100)
	n, err := Check(wire{Reader: strings.NewReader("+OK\r\n$9223372036854775800\r\n")}).Read(buffer)
	if n != 0 || !errors.Is(err, ErrTooLarge) || bytes.Contains(buffer[:n], []byte("$")) {
		t.Errorf("read %q, %v", buffer[:n], err)
	}
}

// TestConn_AllocatesNothing: the walker, which checks replies, keeps none of their bytes.
func TestConn_AllocatesNothing(t *testing.T) {
	reply := []byte(fmt.Sprintf("*%d\r\n%s", maxElements, strings.Repeat("$1\r\nx\r\n", maxElements)))
	var w walker
	if n := testing.AllocsPerRun(3, func() {
		if err := w.bytes(reply); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCheck_Socket: the result of Check has a socket for a TCP connection, and none for a TLS connection.
func TestCheck_Socket(t *testing.T) {
	if _, ok := Check(&net.TCPConn{}).(syscall.Conn); !ok {
		t.Error("no socket")
	}
	if _, ok := Check(wire{}).(syscall.Conn); ok {
		t.Error("a socket")
	}
}

// reply is a second, strict parser to compare with. It parses one value at the start of b and returns the rest. It adds
// the memory of the value to weight. The error is errEarly if b ends within the value.
func reply(b []byte, depth int, attributed bool, weight *int) (rest []byte, err error) {
	kind, line, rest, err := header(b)
	if err != nil {
		return nil, err
	}
	s, _ := shapeOf(kind)
	if s == text {
		*weight += len(line)
		return rest, heavy(*weight)
	}
	if string(line) == "-1" && (kind == '$' || kind == '*') {
		return rest, nil
	}
	n, err := length(line, s)
	if err != nil {
		return nil, err
	}
	if s == bulk {
		if *weight += n; heavy(*weight) != nil {
			return nil, ErrTooLarge
		}
		return body(rest, n)
	}
	n = map[byte]int{'%': 2 * n, '|': 2*n + 1}[kind] + map[bool]int{kind != '%' && kind != '|': n}[true]
	*weight += n * elementWeight
	if depth == maxDepth || heavy(*weight) != nil {
		return nil, ErrTooLarge
	}
	if kind == '|' && attributed {
		return nil, ErrMalformed
	}
	for range n {
		if rest, err = reply(rest, depth+1, attributed || kind == '|', weight); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

var errEarly = errors.New("the text ends early")

func heavy(weight int) error {
	if weight > maxReply {
		return ErrTooLarge
	}
	return nil
}

// header splits the first line of a value into its kind and the rest of the line, and returns the bytes after it.
func header(b []byte) (kind byte, line, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, nil, errEarly
	}
	if s, _ := shapeOf(b[0]); s == none {
		return 0, nil, nil, ErrMalformed
	}
	line, rest, found := bytes.Cut(b[1:], []byte("\r\n"))
	if i := bytes.IndexAny(bytes.TrimSuffix(line, []byte("\r")), "\r\n"); i >= 0 || found && bytes.ContainsAny(line, "\r\n") {
		return 0, nil, nil, ErrMalformed
	}
	if len(line) >= maxLine+1 || found && len(line)+1 > maxLine {
		return 0, nil, nil, ErrTooLarge
	}
	if !found {
		return 0, nil, nil, errEarly
	}
	return b[0], line, rest, nil
}

// length reads a number in decimal digits.
func length(line []byte, s shape) (n int, err error) {
	if len(line) == 0 {
		return 0, ErrMalformed
	}
	for _, b := range line {
		if b < '0' || b > '9' {
			return 0, ErrMalformed
		}
		if n = n*10 + int(b-'0'); n > maxBulk || s == aggregate && n > maxElements {
			return 0, ErrTooLarge
		}
	}
	return n, nil
}

func body(b []byte, n int) (rest []byte, err error) {
	switch {
	case len(b) <= n:
		return nil, errEarly
	case b[n] != '\r' || len(b) > n+1 && b[n+1] != '\n':
		return nil, ErrMalformed
	case len(b) < n+2:
		return nil, errEarly
	}
	return b[n+2:], nil
}

// replies parses several replies with [reply]. The error is errEarly if b ends within a reply.
func replies(b []byte) (err error) {
	for len(b) > 0 && err == nil {
		weight := 0
		b, err = reply(b, 0, false, &weight)
	}
	return err
}

// FuzzConn: the walker accepts exactly the replies that the reference accepts, and allocates almost nothing.
func FuzzConn(f *testing.F) {
	for _, seed := range []string{
		"*2\r\n$1\r\na\r\n%1\r\n+a\r\n:1\r\n", "$-1\r\n*-1\r\n_\r\n", "|1\r\n+a\r\n+b\r\n*0\r\n", "$9223372036854775800\r\n", "*2147483647\r\n",
		"*-5\r\n", strings.Repeat("*1\r\n", 9), "=7\r\ntxt:abc\r\n", "$?\r\n", "+a\rb\r\n", "$3\r\nabc\r", "|0\r\n|0\r\n+a\r\n", "*65536\r\n*65536\r\n*65536\r\n*65536\r\n",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, step uint8) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var w walker
		var got error
		for rest := text; len(rest) > 0 && got == nil; {
			n := min(int(step)+1, len(rest))
			got, rest = w.bytes(rest[:n]), rest[n:]
		}
		runtime.ReadMemStats(&after)
		if after.TotalAlloc-before.TotalAlloc > 1<<20 {
			t.Errorf("%d bytes allocated for %d", after.TotalAlloc-before.TotalAlloc, len(text))
		}
		want := replies(text)
		switch {
		case want == nil && (got != nil || w.state != atKind || w.depth != 0):
			t.Errorf("refused: %v", got)
		case errors.Is(want, errEarly): // in an incomplete line, the walker may already find a fault
			if got == nil && w.state == atKind && w.depth == 0 {
				t.Error("half a reply is a whole one")
			}
		case want != nil && got == nil:
			t.Errorf("accepted, want %v", want)
		}
	})
}
