package deltatest

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/parquet/compress"
)

// Main runs the tests of a package whose bubbles read or write Parquet, and returns the exit code. Before the tests it
// makes the Parquet library create its decoder: the process has only one, and a channel that is created in a bubble
// cannot be used outside of it.
func Main(m *testing.M) int {
	codec, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		panic(err)
	}
	codec.Decode(nil, codec.EncodeLevel(nil, []byte("warm"), 1))
	return m.Run()
}

// Bubble runs f in virtual time. Two garbage collections then empty the Parquet library's pool of encoders, because an
// encoder of one bubble must not be used in the next one.
func Bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer func() {
		runtime.GC()
		runtime.GC()
	}()
	synctest.Test(t, f)
}
