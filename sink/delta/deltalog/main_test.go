package deltalog_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain asks for fewer random histories than rapid does by itself: each reads and writes Parquet many times. The
// command line can ask for more.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
