package liveness

import (
	"bytes"
	"fmt"
	"runtime"
)

// dumpBytes limits the goroutine dump in the log.
const dumpBytes = 1 << 20

// Goroutines returns the stacks of all goroutines as Go prints them, cut to about most bytes. It removes the arguments
// of functions, because parts of records may be among them.
func Goroutines(most int) []byte {
	buf := make([]byte, 2*most) // about half of it is removed afterwards
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

// withoutArguments removes the values of the arguments from the line of a call, such as "pkg.(*T).do(0x1, {0x2, 0x3})".
// Other lines stay: the line of a file, which begins with a tab, and those that begin with "goroutine" or "created by".
func withoutArguments(line []byte) []byte {
	if bytes.HasPrefix(line, []byte("\t")) || bytes.HasPrefix(line, []byte("goroutine ")) || bytes.HasPrefix(line, []byte("created by ")) ||
		!bytes.HasSuffix(line, []byte(")")) {
		return line
	}
	return append(line[:bytes.LastIndexByte(line, '(')], "(...)"...)
}
