// Command licences writes NOTICE and THIRD_PARTY_LICENSES: the texts that the licences of the linked modules ask a
// release to ship.
//
//	go run ./test/licences [-write]
//
// It reads the LICENSE, NOTICE and PATENTS files of exactly the modules that the release links, from the module cache.
// Without -write it compares the two files and exits with 1 if they are out of date. A module whose licence is not on
// the list of allowed ones is an error. The command needs no network once the modules are in the cache.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

// These are the names of the two files, at the top of the repository.
const (
	noticeFile   = "NOTICE"
	licencesFile = "THIRD_PARTY_LICENSES"
)

func main() {
	write := flag.Bool("write", false, "write the files instead of comparing them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, ".", *write); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		stop()
		os.Exit(1)
	}
}

// run computes the content of the two files from the modules that a release links. If write is true, it writes them
// into the repository at dir. Otherwise it returns an error that names each file with another content.
func run(ctx context.Context, dir string, write bool) error {
	modules, err := linked(ctx, dir)
	if err != nil {
		return err
	}
	var all error
	for name, want := range map[string][]byte{noticeFile: notice(modules), licencesFile: licences(modules)} {
		path := filepath.Join(dir, name)
		if write {
			all = errors.Join(all, os.WriteFile(path, want, 0o644))
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			all = errors.Join(all, err)
		} else if !bytes.Equal(have, want) {
			all = errors.Join(all, fmt.Errorf("%s is not what the linked modules ask for: run make notice and look at the difference", name))
		}
	}
	return all
}
