package deltatest

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/parquet/compress"
)

// Main runs the tests of a package whose bubbles read or write Parquet, and returns the exit code. The Parquet library
// has one decoder per process, and a channel that is created in a bubble cannot be used outside of it. So Main makes
// the library create its decoder before the tests.
func Main(m *testing.M) int {
	codec, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		panic(err)
	}
	codec.Decode(nil, codec.EncodeLevel(nil, []byte("warm"), 1))
	return m.Run()
}

// Bubble runs f in virtual time. An encoder that was created in one bubble must not be used in the next one, so Bubble
// runs the garbage collector twice afterwards, which empties the Parquet library's pool of encoders.
func Bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer func() {
		runtime.GC()
		runtime.GC()
	}()
	synctest.Test(t, f)
}
