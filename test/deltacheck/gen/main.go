// Command gen writes Delta tables with the product's decoder and writer, and beside them the rows that readers must
// return.
//
//	go run ./test/deltacheck/gen -dir DIR [-cases 2000] [-seed 1] [-named=false]
//
// Each case is a table DIR/NAME and a file DIR/NAME.json. DIR/cases.json names the cases, the seed, and the types that
// this version of the product does not write.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"

	"github.com/google/uuid"

	"sluice/connector/schema"
	"sluice/sink/delta/objstore"
)

// list is the file cases.json.
type list struct {
	Run    string   `json:"run"` // a name of this run alone
	Seed   uint64   `json:"seed"`
	Random int      `json:"random"`
	Kinds  []string `json:"kinds"`
	Absent []string `json:"absent"` // types that the product does not write
	Cases  []string `json:"cases"`
}

func main() {
	dir := flag.String("dir", "", "the directory to write to")
	cases := flag.Int("cases", 2000, "the number of random cases")
	seed := flag.Uint64("seed", 1, "the seed of the random cases")
	named := flag.Bool("named", true, "also write the cases that are the same in every run")
	flag.Parse()
	if *dir == "" || *cases < 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *cases, *seed, *named); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, cases int, seed uint64, named bool) error {
	l := list{Run: uuid.NewString(), Seed: seed, Random: cases, Absent: []string{}}
	var written []kind
	for _, k := range kinds() {
		if writes(k.name) {
			written = append(written, k)
			l.Kinds = append(l.Kinds, k.name)
		} else {
			l.Absent = append(l.Absent, k.name)
		}
	}
	maps := writes("map<string, string>")
	if !maps {
		l.Absent = append(l.Absent, "map")
	}
	var all []testCase
	if named {
		all = (&random{rand.New(rand.NewPCG(seed, 0)), written, maps}).named()
	}
	for i := range cases {
		all = append(all, randomCase(seed, uint64(i)+1, written, maps))
	}
	store, err := objstore.NewLocal(ctx, dir)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := writeAll(ctx, dir, store, all); err != nil {
		return err
	}
	for _, c := range all {
		l.Cases = append(l.Cases, c.name)
	}
	fmt.Printf("seed %d: %d cases, %d of them random; not written by this version: %v\n", seed, len(all), cases, l.Absent)
	return save(filepath.Join(dir, "cases.json"), l)
}

// writes reports whether the product writes a type.
func writes(name string) bool {
	_, err := schema.ParseDDL("c " + name)
	return err == nil
}

// writeAll writes several cases at a time, because a case mostly waits for the disk.
func writeAll(ctx context.Context, dir string, store objstore.Store, all []testCase) error {
	var group sync.WaitGroup
	failed := make(chan error, len(all))
	next := make(chan testCase)
	for range 4 {
		group.Go(func() {
			for c := range next {
				expect, err := write(ctx, dir, store, c)
				if err == nil {
					err = save(filepath.Join(dir, c.name+".json"), expect)
				}
				if err != nil {
					failed <- fmt.Errorf("case %s: %w", c.name, err)
				}
			}
		})
	}
	for _, c := range all {
		if len(failed) > 0 {
			break
		}
		next <- c
	}
	close(next)
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func save(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
