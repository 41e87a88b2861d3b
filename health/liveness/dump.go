package liveness

import (
	"bytes"
	"fmt"
	"runtime"
)

// dumpBytes limits the goroutine dump in the log.
const dumpBytes = 1 << 20

// Goroutines returns what all goroutines do now, in Go's words and at most so many bytes, without the arguments of
// functions: a small value, or a piece of a larger one, may be among them.
func Goroutines(most int) []byte {
	buf := make([]byte, 2*most) // the filter removes about half
	n := runtime.Stack(buf, true)
	cut := n == len(buf)
	var out bytes.Buffer
	for line := range bytes.Lines(buf[:n]) {
		line = withoutArguments(bytes.TrimSuffix(line, []byte{'\n'}))
		if out.Len()+len(line) >= most {
			cut = true
			break
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	if cut {
		fmt.Fprintf(&out, "[cut: %d goroutines in all]\n", runtime.NumGoroutine())
	}
	return out.Bytes()
}

// withoutArguments cuts those of a frame, "pkg.(*T).do(0x1, {0x2, 0x3})". Other lines stay: of a file, which begins with a
// tab, of a goroutine and who created it.
func withoutArguments(line []byte) []byte {
	if bytes.HasPrefix(line, []byte("\t")) || bytes.HasPrefix(line, []byte("goroutine ")) || bytes.HasPrefix(line, []byte("created by ")) ||
		!bytes.HasSuffix(line, []byte(")")) {
		return line
	}
	return append(line[:bytes.LastIndexByte(line, '(')], "(...)"...)
}
