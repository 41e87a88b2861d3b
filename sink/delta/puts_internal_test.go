package delta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta/datafile"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// gate is a store whose puts and deletes wait until the test lets them end.
type gate struct {
	objstore.Store
	mu      sync.Mutex
	begun   []string // the keys of all requests, in the order in which they began
	running int
	most    int
	ends    chan error // the result of the next request to end
}

func newGate() *gate { return &gate{Store: objstore.NewMem(), ends: make(chan error)} }

func (g *gate) wait(ctx context.Context, key string) error {
	g.mu.Lock()
	g.begun = append(g.begun, key)
	g.running++
	g.most = max(g.most, g.running)
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running--
	}()
	select {
	case err := <-g.ends:
		return err
	case <-ctx.Done():
		return classify.Mark(ctx.Err(), classify.Transient)
	}
}

func (g *gate) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	if err := g.wait(ctx, key); err != nil {
		return err
	}
	return g.Store.Put(ctx, key, body, mode)
}

func (g *gate) Delete(ctx context.Context, key string) error {
	if err := g.wait(ctx, key); err != nil {
		return err
	}
	return g.Store.Delete(ctx, key)
}

func (g *gate) now() (begun, running int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.begun), g.running
}

func fileOf(size int) datafile.File {
	return datafile.File{Body: bytes.NewReader(make([]byte, size)), Size: int64(size), Rows: 1}
}

func tableOn(t *testing.T, store objstore.Store) *Table {
	t.Helper()
	tab, err := Open(store, Options{Pipeline: "p", Guard: reliability.NewGuard("store", reliability.Config{
		Backoff: reliability.Backoff{Initial: 1, Max: 1}, Failures: 5, OpenFor: 1, Successes: 1,
	}, nil, nil)})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestPuts: small files of a table with partitions are put filesAtOnce at a time, and progress counts those that are not
// put yet and what the commit needs.
func TestPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		p := tableOn(t, g).newPuts(t.Context(), "b", true)
		var encoded int64
		progress := p.counting(func(_ int, n int64) { encoded = n })
		const files, size = 3*filesAtOnce + 1, 100
		put := make(chan int, files)
		go func() {
			defer close(put)
			for i := range files {
				if err := p.put(fmt.Sprint("f", i), fileOf(size)); err != nil {
					t.Error(err)
				}
				put <- i
			}
		}()
		synctest.Wait()
		if begun, running := g.now(); begun != filesAtOnce || running != filesAtOnce || len(put) != filesAtOnce {
			t.Errorf("%d puts have begun, %d run, the encoder has passed %d files", begun, running, len(put))
		}
		p.needed = 7
		if progress(3, 5); encoded != 5+7+(filesAtOnce+1)*size { // one more waits for its turn
			t.Errorf("%d bytes are in memory", encoded)
		}
		for range filesAtOnce {
			g.ends <- nil
			synctest.Wait()
		}
		if begun, running := g.now(); begun != 2*filesAtOnce || running != filesAtOnce {
			t.Errorf("%d puts have begun, %d run", begun, running)
		}
		close(g.ends)
		for range put {
		}
		if err := p.end(nil); err != nil {
			t.Error(err)
		}
		if progress(3, 0); encoded != 7 || g.most != filesAtOnce || p.ctx.Err() == nil {
			t.Errorf("%d bytes are in memory, up to %d puts ran, %v", encoded, g.most, p.ctx.Err())
		}
		for i := range files {
			if _, err := g.Head(t.Context(), fmt.Sprint("f", i)); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestPuts_OneByOne: files of a table without partitions, and large files, are put before the encoder continues.
func TestPuts_OneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		for _, c := range []struct {
			several bool
			size    int
		}{{false, 10}, {true, smallFile + 1}} {
			p := tableOn(t, g).newPuts(t.Context(), "b", c.several)
			before, _ := g.now()
			put := make(chan error)
			go func() { put <- p.put(fmt.Sprint("f", c.size), fileOf(c.size)) }()
			synctest.Wait()
			if begun, running := g.now(); begun != before+1 || running != 1 || p.waiting.Load() != 0 {
				t.Errorf("%d puts have begun, %d run, %d bytes", begun, running, p.waiting.Load())
			}
			select {
			case err := <-put:
				t.Errorf("the encoder continues: %v", err)
			default:
			}
			g.ends <- nil
			if err := errors.Join(<-put, p.end(nil)); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestPuts_Fails: the first error of a put, or of the encoder, cancels the puts in flight, no others begin, and all have
// ended when the method end returns that error.
func TestPuts_Fails(t *testing.T) {
	denied := classify.Mark(errors.New("denied"), classify.Fatal)
	encoder := errors.New("a bad row")
	for name, c := range map[string]struct{ put, encoding, want error }{
		"put":     {put: denied, want: denied},
		"encoder": {encoding: encoder, want: encoder},
		// The encoder returns the context's error after the put has failed.
		"both": {put: denied, encoding: context.Canceled, want: denied},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				p := tableOn(t, g).newPuts(t.Context(), "b", true)
				for i := range filesAtOnce {
					if err := p.put(fmt.Sprint("f", i), fileOf(10)); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if c.put != nil {
					g.ends <- c.put
					synctest.Wait()
					if _, running := g.now(); running != 0 || p.ctx.Err() == nil {
						t.Errorf("%d puts still run, %v", running, p.ctx.Err())
					}
					if err := p.put("late", fileOf(10)); err != nil {
						t.Error(err)
					}
				}
				err := p.end(c.encoding)
				if begun, running := g.now(); !errors.Is(err, c.want) || begun != filesAtOnce || running != 0 {
					t.Errorf("%v, want %v; %d puts have begun, %d run", err, c.want, begun, running)
				}
				var held *hold.Error
				if c.put != nil && (!errors.As(err, &held) || held.Reason != hold.StoreDenied) {
					t.Errorf("%v is no hold", err)
				}
			})
		})
	}
}

// TestPuts_Panics: a panic of the store while a goroutine puts a file is an error.
func TestPuts_Panics(t *testing.T) {
	p := tableOn(t, nil).newPuts(t.Context(), "b", true)
	if err := p.put("f", fileOf(10)); err != nil {
		t.Fatal(err)
	}
	if err := p.end(nil); classify.Of(err) == classify.Canceled || err == nil {
		t.Error(err)
	}
}

// TestDiscard_AtOnce: Discard deletes filesAtOnce files of a table with partitions at a time, and one at a time of
// others. After an error it deletes no more.
func TestDiscard_AtOnce(t *testing.T) {
	for partitioned, atOnce := range map[bool]int{true: filesAtOnce, false: 1} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprint(partitioned, fails), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGate()
					tab, out := tableOn(t, g), &staged{partitioned: partitioned}
					const files = 2*filesAtOnce + 1
					for i := range files {
						out.adds = append(out.adds, deltalog.Add{Path: fmt.Sprint("f", i)})
					}
					done := make(chan struct{})
					go func() { defer close(done); tab.Discard(t.Context(), stagedOf(out)) }()
					synctest.Wait()
					if begun, running := g.now(); begun != atOnce || running != atOnce {
						t.Errorf("%d deletions have begun, %d run", begun, running)
					}
					want := files
					if fails {
						g.ends <- errors.New("no")
						want = atOnce
					} else {
						close(g.ends)
					}
					<-done
					if begun, running := g.now(); begun != want || running != 0 || !out.discarded {
						t.Errorf("%d deletions have begun, %d run", begun, running)
					}
					if !partitioned && !slices.IsSortedFunc(g.begun, func(a, b string) int { return len(a) - len(b) }) {
						t.Errorf("order %q", g.begun)
					}
				})
			})
		}
	}
}

func stagedOf(f *staged) *connector.Staged { return &connector.Staged{Files: f} }
