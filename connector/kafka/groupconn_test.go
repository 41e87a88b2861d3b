package kafka

import (
	"bytes"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// written is a connection that keeps the bytes written to it.
type written struct {
	net.Conn
	all bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) { return w.all.Write(b) }

// TestGroupConnCreatesNothing: a groupConn changes metadata requests so that they create no topics, also if they are
// written in pieces of any size. It leaves all other bytes unchanged.
func TestGroupConnCreatesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent, want []byte
		for range rapid.IntRange(1, 5).Draw(t, "requests") {
			key := rapid.SampledFrom([]int16{3, 3, 11, 12, 18}).Draw(t, "key")
			version := rapid.SampledFrom([]int16{0, 1, 3, 4, 6, 7, 8}).Draw(t, "version")
			body := append(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "body"), 1)
			e := encoder{}
			e.i32(int32(4 + len(body)))
			e.i16(key)
			e.i16(version)
			sent = append(append(sent, e.b...), body...)
			if key == 3 && version >= 4 && version <= 7 {
				body = append(bytes.Clone(body[:len(body)-1]), 0)
			}
			want = append(append(want, e.b...), body...)
		}
		w := &written{}
		c := &groupConn{Conn: w}
		before := bytes.Clone(sent)
		for rest := sent; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if m, err := c.Write(rest[:n]); m != n || err != nil {
				t.Fatalf("wrote %d of %d: %v", m, n, err)
			}
			rest = rest[n:]
		}
		if diff := cmp.Diff(want, w.all.Bytes()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if !bytes.Equal(before, sent) {
			t.Fatal("changed the caller's bytes")
		}
	})
}
