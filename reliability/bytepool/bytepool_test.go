package bytepool

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

// TestPool: after any sequence of calls, used and idle bytes together never exceed the size, each buffer has the
// requested size, no two callers have the same buffer, and in the end no bytes are used.
func TestPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewScrubbing(int64(rapid.IntRange(1, 8<<20).Draw(t, "size")))
		var taken []int64
		var lent [][]byte
		used := int64(0)
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "which") }
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.Int64Range(0, p.size).Draw(t, "n")
				if got, want := p.TryAcquire(n), used+n <= p.size; got != want {
					t.Fatalf("TryAcquire(%d) with %d of %d used: %v", n, used, p.size, got)
				} else if got {
					taken, used = append(taken, n), used+n
				}
			},
			"give": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip()
				}
				i := pick(len(taken))
				p.Release(taken[i])
				used -= taken[i]
				taken = append(taken[:i], taken[i+1:]...)
			},
			"lend": func(t *rapid.T) {
				n := rapid.IntRange(1, int(p.size)).Draw(t, "n")
				b, ok := p.TryGet(n)
				if ok != (used+int64(n) <= p.size) {
					t.Fatalf("TryGet(%d) with %d of %d used: %v", n, used, p.size, ok)
				}
				if !ok {
					return
				}
				if len(b) != 0 || cap(b) < n {
					t.Fatalf("asked for %d, got %d of %d", n, len(b), cap(b))
				}
				b = b[:cap(b)]
				b[0], b[len(b)-1] = byte(len(lent)), byte(len(lent))
				lent, used = append(lent, b), used+int64(cap(b))
			},
			"draw": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip()
				}
				i := pick(len(taken))
				n := rapid.IntRange(1, int(p.size)).Draw(t, "n")
				b, left, ok := p.Draw(n, taken[i])
				if want := used+max(int64(n)-taken[i], 0) <= p.size; ok && cap(b) < n || ok != want || left > taken[i] || left < 0 {
					t.Fatalf("Draw(%d, %d) with %d of %d used: %d, %d, %v", n, taken[i], used, p.size, cap(b), left, ok)
				}
				if !ok {
					return
				}
				b = b[:cap(b)]
				b[0], b[len(b)-1] = 1, 1
				used += int64(cap(b)) - (taken[i] - left)
				lent, taken[i] = append(lent, b), left
			},
			"return": func(t *rapid.T) {
				if len(lent) == 0 {
					t.Skip()
				}
				i := pick(len(lent))
				b := lent[i]
				if b[0] == 0xDB && i != 0xDB {
					t.Fatal("somebody else had it")
				}
				used -= int64(cap(b))
				p.Put(b)
				lent = append(lent[:i], lent[i+1:]...)
			},
			"": func(t *rapid.T) {
				if p.Used() != used || used+p.idleBytes > p.size || used > p.size {
					t.Fatalf("used %d, want %d, idle %d, size %d", p.Used(), used, p.idleBytes, p.size)
				}
				kept := 0
				for n, list := range p.idle {
					kept += n * len(list)
				}
				if int64(kept) != p.idleBytes {
					t.Fatalf("%d idle, %d noted", kept, p.idleBytes)
				}
			},
		})
	})
}

// TestKeep: a buffer that was given to Keep does not count as used, and Take returns it again. Idle buffers never
// exceed the budget, and are dropped when a caller needs their bytes.
func TestKeep(t *testing.T) {
	p := NewScrubbing(1 << 20)
	b := append(p.Take(100<<10), 1)
	if p.Used() != 0 || cap(b) < 100<<10 {
		t.Errorf("%d used, %d bytes", p.Used(), cap(b))
	}
	p.Keep(b)
	if b[0] != 0xDB || p.idleBytes != int64(cap(b)) {
		t.Errorf("%#x, %d idle", b[0], p.idleBytes)
	}
	if c := p.Take(90 << 10); &c[:1][0] != &b[0] || p.idleBytes != 0 {
		t.Error("a new one")
	}
	for range 30 {
		p.Keep(make([]byte, 0, 50_001)) // a size that no buffer of the pool has
	}
	if p.idleBytes > p.size || p.idleBytes < p.size-50_001 {
		t.Errorf("%d idle", p.idleBytes)
	}
	if !p.TryAcquire(1<<20) || p.idleBytes != 0 || len(p.idle) != 0 {
		t.Errorf("%d idle in %d sizes beside a full budget", p.idleBytes, len(p.idle))
	}
	if p.Keep(b); p.idleBytes != 0 {
		t.Error("kept beyond the budget")
	}
}

// TestReuse: a buffer that was given back with Put serves a later TryGet of about its size without an allocation. Idle
// buffers do not keep other callers from their bytes.
func TestReuse(t *testing.T) {
	p := New(10 << 20)
	a, _ := p.TryGet(3 << 20)
	a = append(a, 1)
	p.Put(a)
	b, _ := p.TryGet(3<<20 - 5000)
	if &a[0] != &b[:1][0] {
		t.Error("a new one")
	}
	if n := testing.AllocsPerRun(100, func() {
		x, _ := p.TryGet(100 << 10)
		p.Put(x)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	p.Put(b)
	if !p.TryAcquire(10<<20) || p.idleBytes != 0 {
		t.Error("idle buffers keep others from the budget")
	}
}

func TestClass(t *testing.T) {
	for n := 1; n < 1<<27; n += 1 + n/7 {
		c := class(n)
		if c < n || class(c) != c || n > 4<<10 && c > 2*n || n > 64<<10 && c > n+n/4 {
			t.Errorf("class(%d) = %d", n, c)
		}
	}
}

// TestOrder: callers of Acquire are served in the order in which they wait. A caller of GetFirst is served before them,
// and no caller gets bytes while it waits.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(100)
		var mu sync.Mutex
		var order []string
		served := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
		}
		if !p.TryAcquire(90) {
			t.Fatal("no")
		}
		for _, name := range []string{"a", "b"} {
			go func() {
				if p.Acquire(t.Context(), 50) == nil {
					served(name)
				}
			}()
			synctest.Wait()
		}
		<-p.Pressed()
		if !p.Short() || !p.TryAcquire(10) { // TryAcquire does not wait for the callers of Acquire
			t.Error("short")
		}
		go func() {
			b, err := p.GetFirst(t.Context(), 40, 60)
			if err == nil && cap(b) == 40 {
				served("first")
			}
		}()
		synctest.Wait()
		<-p.Pressed()
		if _, err := p.GetFirst(t.Context(), 1, 0); !errors.Is(err, ErrTaken) {
			t.Error(err)
		}
		p.Release(30)
		synctest.Wait()
		if _, ok := p.TryGet(1); ok || p.TryAcquire(1) || len(order) != 0 {
			t.Error("somebody passed", order)
		}
		p.Release(10)
		synctest.Wait()
		p.Release(60) // afterwards 40 bytes are in use
		synctest.Wait()
		if got := strings.Join(order, " "); got != "first a" || p.Used() != 90 {
			t.Error(got, p.Used())
		}
		p.Release(50)
		synctest.Wait()
		if got := strings.Join(order, " "); got != "first a b" || p.Short() {
			t.Error(got)
		}
	})
}

// TestGivingUp: if the context of a waiting caller ends, it takes no bytes, and the next waiting caller is served.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(100)
		p.Adjust(120) // in use is more than the size of the pool
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		results := make(chan error, 3)
		go func() { results <- p.Acquire(ctx, 100) }()
		synctest.Wait()
		go func() { results <- p.Acquire(t.Context(), 10) }()
		synctest.Wait()
		go func() { _, err := p.GetFirst(ctx, 50, 0); results <- err }()
		synctest.Wait()
		p.Adjust(-40)
		synctest.Wait()
		cancel(gone)
		synctest.Wait()
		for range 2 {
			if err := <-results; !errors.Is(err, gone) && err != nil {
				t.Error(err)
			}
		}
		if err := <-results; p.Used() != 90 || p.Short() {
			t.Error(err, p.Used())
		}
		if err := p.Acquire(t.Context(), 101); !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
		if _, err := p.GetFirst(t.Context(), 41, 60); !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
	})
}

// TestTogether: many goroutines take and return bytes at once, and in the end none are used.
func TestTogether(t *testing.T) {
	p := NewScrubbing(1 << 20)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for range 300 {
				n := 1 + rnd.IntN(300<<10)
				switch rnd.IntN(3) {
				case 0:
					if err := p.Acquire(t.Context(), int64(n)); err != nil {
						t.Error(err)
					}
					p.Release(int64(n))
				case 1:
					if b, err := p.GetFirst(t.Context(), n, 0); err == nil {
						p.Put(b)
					} else if !errors.Is(err, ErrTaken) {
						t.Error(err)
					}
				default:
					if b, ok := p.TryGet(n); ok {
						p.Put(b)
					}
				}
			}
		})
	}
	all.Wait()
	if p.Used() != 0 || p.Short() {
		t.Error(p.Used())
	}
}

func TestGivenTooMuch(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("not noticed")
		}
	}()
	New(10).Release(1)
}

func TestCollector(t *testing.T) {
	p := New(8 << 20)
	b, _ := p.TryGet(1 << 20)
	p.Put(b)
	p.Adjust(5)
	reg := prometheus.NewRegistry()
	reg.MustRegister(Collector(map[string]*Pool{"fetch": p}))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	want := map[string]float64{
		"sluice_pool_bytes fetch size": 8 << 20, "sluice_pool_bytes fetch idle": 1 << 20, "sluice_pool_bytes fetch used": 5,
		"sluice_pool_waits_total fetch": 0,
	}
	if !maps.Equal(got, want) {
		t.Error(got)
	}
}
