package deltatest

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/parquet/compress"
)

// Main runs the tests of a package whose bubbles read or write Parquet, and returns the exit code. It first makes the Parquet
// library's decoder: there is one per process, and a channel that was made in a bubble cannot be used outside of it.
func Main(m *testing.M) int {
	codec, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		panic(err)
	}
	codec.Decode(nil, codec.EncodeLevel(nil, []byte("warm"), 1))
	return m.Run()
}

// Bubble runs f in virtual time. The library's pool of encoders must not carry one from bubble to bubble; two collections
// empty it.
func Bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer func() {
		runtime.GC()
		runtime.GC()
	}()
	synctest.Test(t, f)
}
