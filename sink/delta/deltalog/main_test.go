package deltalog_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain makes rapid draw fewer histories than by default, because each history reads and writes Parquet many times.
// A flag can set more.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
