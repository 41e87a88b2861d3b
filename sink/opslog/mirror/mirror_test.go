package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/reliability"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
	"sluice/sink/opslog/mirror"
)

// table is a place in memory. It fails the test if the mirror breaks a rule of [mirror.Place]. Its fields make calls
// fail as calls of a server may fail.
type table struct {
	*testing.T

	mu      sync.Mutex
	copies  []opslog.Entry
	opened  int // places that are open
	total   int // places that were opened
	calls   int
	down    error
	lost    int         // Adds that take effect and still fail
	panics  bool        // the next call panics
	noURL   bool        // it cannot be opened
	between func()      // runs once before the next Add, as another member would
	gone    opslog.Head // a copy that Newest does not have
}

type place struct{ *table }

func (t *table) open(context.Context) (mirror.Place, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.noURL {
		var none *place // as a constructor with a concrete type returns it
		return none, errors.New("ops.mirror_url_file: no such file")
	}
	if t.opened++; t.opened > 1 {
		t.Error("a second place was opened")
	}
	t.total++
	return place{t}, nil
}

func (p place) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened--
}

func (p place) called(ctx context.Context) error {
	p.calls++
	if p.panics {
		p.panics = false
		panic("a reply that the client does not expect")
	}
	if p.opened != 1 {
		p.Errorf("a call while %d places are open", p.opened)
	}
	return errors.Join(ctx.Err(), p.down)
}

func (p place) Newest(ctx context.Context, upTo int64) (h opslog.Head, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.copies {
		if e.Seq <= upTo && e.Head() != p.gone {
			h = e.Head()
		}
	}
	return h, p.called(ctx)
}

func (p place) Add(ctx context.Context, after opslog.Head, entries []opslog.Entry) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.called(ctx); err != nil {
		return err
	}
	if p.between != nil {
		other := p.between
		p.between = nil
		other()
	}
	if p.head() != after {
		return fmt.Errorf("add: %w", mirror.ErrMoved)
	}
	size := 0
	for i, e := range entries {
		if want := after.Seq + 1 + int64(i); e.Seq != want {
			p.Errorf("seq %d in the place of %d", e.Seq, want)
		}
		size += len(e.Body)
	}
	if len(entries) == 0 || len(entries) > 500 || size > 4<<20 && len(entries) > 1 {
		p.Errorf("%d entries of %d bytes at once", len(entries), size)
	}
	p.copies = append(p.copies, entries...)
	if p.lost > 0 {
		p.lost--
		return errors.New("the connection broke")
	}
	return nil
}

func (t *table) head() opslog.Head {
	if len(t.copies) == 0 {
		return opslog.Head{}
	}
	return t.copies[len(t.copies)-1].Head()
}

// followed is the [mirror.Log] that a member passes to its mirror: the state comes from a follower, the entries from
// the log.
type followed struct {
	*opslog.Follower
	log *opslog.Log
}

func (f followed) Entries(ctx context.Context, from int64) iter.Seq2[opslog.Entry, error] {
	return f.log.Entries(ctx, from)
}

// scene is a log, a mirror and its table.
type scene struct {
	*testing.T
	store    objstore.Store
	log      *opslog.Log
	table    *table
	registry *prometheus.Registry
	lines    strings.Builder
	written  int
}

// run starts a mirror in a bubble and calls test. It calls before first, when the mirror does not run yet. It fails the
// test if a place is still open after the mirror has ended.
func run(t *testing.T, before, test func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, store: objstore.NewMem(), table: &table{T: t}, registry: prometheus.NewRegistry()}
		s.log = s.open()
		before(s)
		log := s.open()
		follower, err := log.Follow(opslog.PollEvery)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mirror.New(mirror.Config{Log: followed{follower, log}, Open: s.table.open, Logger: slog.New(slog.NewJSONHandler(&s.lines, nil)), Registerer: s.registry})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.metric("sluice_audit_mirror_behind_entries"); got != -1 {
			t.Errorf("before it knows: behind %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		following, done := make(chan struct{}), make(chan struct{})
		go func() { follower.Run(ctx); close(following) }()
		go func() { m.Run(ctx); close(done) }()
		s.pass(opslog.FollowDelay)
		test(s)
		cancel()
		<-following
		<-done
		if s.table.opened != 0 {
			t.Errorf("%d places are still open", s.table.opened)
		}
	})
}

func nothing(*scene) {}

func (s *scene) open() *opslog.Log {
	return opslog.Open(s.store, "p", opslog.Options{Guard: reliability.NewGuard("operations log", reliability.Config{
		Backoff: reliability.Backoff{Initial: time.Second, Max: time.Second}, Failures: 5, OpenFor: time.Minute, Successes: 1,
	}, slog.New(slog.DiscardHandler), nil)})
}

// write appends n operations.
func (s *scene) write(n int) {
	s.Helper()
	for range n {
		s.written++
		if _, err := s.log.Append(s.Context(), opslog.Operation{Operator: "ada", Reason: fmt.Sprint("reason ", s.written), Body: opslog.Pause{Targets: []opslog.Target{opslog.Topic("orders")}}}, nil); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *scene) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *scene) metric(name string) float64 {
	s.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	s.Fatalf("no metric %s", name)
	return 0
}

// change calls a function that may change the table. Meanwhile the mirror cannot use the table.
func (s *scene) change(change func(t *table)) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	change(s.table)
}

// opened returns how many times the place was opened so far.
func (s *scene) opened() (n int) {
	s.change(func(t *table) { n = t.total })
	return n
}

// calls returns how many calls the place got so far.
func (s *scene) calls() (n int) {
	s.change(func(t *table) { n = t.calls })
	return n
}

// want fails the test unless the copies are the first n entries of the log, in order, and the metric of missing copies
// is behind.
func (s *scene) want(n int, behind float64) {
	s.Helper()
	var copied []opslog.Entry
	var want, got []string
	for e, err := range s.open().Entries(s.Context(), 1) {
		if err != nil {
			s.Fatal(err)
		}
		if len(want) < n {
			want = append(want, e.Head().String()+e.Reason)
		}
	}
	s.change(func(t *table) { copied = slices.Clone(t.copies) })
	for _, e := range copied {
		got = append(got, e.Head().String()+e.Reason)
	}
	if !slices.Equal(want, got) || len(want) != n {
		s.Errorf("copied %q, want the first %d: %q", got, n, want)
	}
	if b := s.metric("sluice_audit_mirror_behind_entries"); b != behind {
		s.Errorf("behind %v, want %v", b, behind)
	}
}

// says fails the test unless the given number of the member's log lines contain text.
func (s *scene) says(text string, lines int) {
	s.Helper()
	if got := strings.Count(s.lines.String(), text); got != lines {
		s.Errorf("%d lines with %q, want %d:\n%s", got, text, lines, s.lines.String())
	}
}

// TestMirror: the entries before the start and new ones are copied within the time in which members follow the log. An
// unchanged log costs one request a minute.
func TestMirror(t *testing.T) {
	run(t, func(s *scene) { s.write(3) }, func(s *scene) {
		s.want(3, 0)
		s.write(2)
		s.pass(opslog.FollowDelay)
		s.want(5, 0)
		if n := s.metric("sluice_audit_mirror_entries_total"); n != 5 {
			s.Errorf("%v entries were copied", n)
		}
		calls := s.calls()
		s.pass(10 * time.Minute)
		if n := s.calls() - calls; n < 9 || n > 11 {
			s.Errorf("%d calls in ten minutes", n)
		}
		if s.opened() != 1 || s.metric("sluice_audit_mirror_failures_total") != 0 || s.lines.Len() > 0 {
			s.Errorf("%d places; log: %s", s.opened(), s.lines.String())
		}
	})
}

func TestMirror_EmptyLog(t *testing.T) {
	run(t, nothing, func(s *scene) { s.want(0, 0) })
}

// TestMirror_Many: a long log is copied in parts of bounded size.
func TestMirror_Many(t *testing.T) {
	run(t, func(s *scene) { s.write(1203) }, func(s *scene) { s.want(1203, 0) })
}

// TestMirror_Outage: a place that is down delays no operation. The failures are logged and counted. When the place is
// up again, it is opened anew and gets the missing copies.
func TestMirror_Outage(t *testing.T) {
	run(t, func(s *scene) { s.write(2) }, func(s *scene) {
		s.change(func(t *table) { t.down = errors.New("connection refused") })
		start := time.Now()
		s.write(4)
		if took := time.Since(start); took > 0 {
			s.Errorf("operations took %s", took)
		}
		s.pass(3 * time.Minute)
		s.want(2, 4)
		s.says("failed to copy the operations log", 2) // at once, and after a minute
		if n := s.metric("sluice_audit_mirror_failures_total"); n < 5 || n > 12 {
			s.Errorf("%v failures", n)
		}
		opened := s.opened()
		s.change(func(t *table) { t.down = nil })
		s.pass(90 * time.Second)
		s.want(6, 0)
		s.says("copying the operations log again", 1)
		if s.opened() != opened+1 {
			s.Errorf("%d places, %d before", s.opened(), opened)
		}
	})
}

// TestMirror_CannotOpen: while the file with the URL of the place is missing, nothing is copied, and the failure is
// logged. Once the file exists, all entries are copied.
func TestMirror_CannotOpen(t *testing.T) {
	run(t, func(s *scene) { s.write(2); s.table.noURL = true }, func(s *scene) {
		s.pass(30 * time.Second)
		s.want(0, -1)
		s.says("no such file", 1)
		s.change(func(t *table) { t.noURL = false })
		s.pass(90 * time.Second)
		s.want(2, 0)
	})
}

// TestMirror_LostResponse: if copies were added but the response was lost, they are not added again.
func TestMirror_LostResponse(t *testing.T) {
	run(t, nothing, func(s *scene) {
		s.change(func(t *table) { t.lost = 2 })
		s.write(3)
		s.pass(time.Minute)
		s.write(1)
		s.pass(time.Minute)
		s.want(4, 0)
	})
}

// TestMirror_Panic: if the client of the place panics, the panic is logged, and the copying continues.
func TestMirror_Panic(t *testing.T) {
	run(t, nothing, func(s *scene) {
		s.change(func(t *table) { t.panics = true })
		s.write(1)
		s.pass(time.Minute)
		s.want(1, 0)
		s.says("a panic while the operations log was copied", 1)
	})
}

// TestMirror_OtherMember: if another member copies at the same time, each entry is copied once.
func TestMirror_OtherMember(t *testing.T) {
	run(t, nothing, func(s *scene) {
		s.write(3)
		var first []opslog.Entry
		for e, err := range s.open().Entries(s.Context(), 1) {
			if err != nil {
				s.Fatal(err)
			}
			if e.Seq <= 2 {
				first = append(first, e)
			}
		}
		s.change(func(t *table) { t.between = func() { t.copies = append(t.copies, first...) } })
		s.pass(opslog.FollowDelay)
		s.want(3, 0)
		if s.metric("sluice_audit_mirror_failures_total") != 0 || s.metric("sluice_audit_mirror_entries_total") != 1 {
			s.Error(s.lines.String())
		}
	})
}

// TestMirror_Wiped: if all copies are lost, the mirror makes them again.
func TestMirror_Wiped(t *testing.T) {
	run(t, func(s *scene) { s.write(3) }, func(s *scene) {
		s.change(func(t *table) { t.copies = nil })
		s.pass(2 * time.Minute)
		s.want(3, 0)
	})
}

// TestMirror_Diverged: if the log and the copies differ, nothing is added and nothing is changed.
func TestMirror_Diverged(t *testing.T) {
	other := func(s *scene, n int) { // the copies of another log
		s.write(n)
		for e, err := range s.log.Entries(s.Context(), 1) {
			if err != nil {
				s.Fatal(err)
			}
			s.table.copies = append(s.table.copies, e)
		}
		s.store, s.written = objstore.NewMem(), 100
		s.log = s.open()
	}
	for name, before := range map[string]func(*scene){
		"same length":    func(s *scene) { other(s, 2); s.write(2) },
		"log is longer":  func(s *scene) { other(s, 2); s.write(5) },
		"log is shorter": func(s *scene) { other(s, 5); s.write(2) },
	} {
		t.Run(name, func(t *testing.T) {
			var copies []opslog.Entry
			run(t, func(s *scene) { before(s); copies = slices.Clone(s.table.copies) }, func(s *scene) {
				var now []opslog.Entry
				s.pass(10 * time.Minute)
				s.change(func(t *table) { now = slices.Clone(t.copies) })
				if len(now) != len(copies) || now[len(now)-1].Head() != copies[len(copies)-1].Head() {
					s.Errorf("%d copies, %d before", len(now), len(copies))
				}
				if !strings.Contains(s.lines.String(), "is not the one in the operations log") || s.metric("sluice_audit_mirror_failures_total") == 0 {
					s.Error(s.lines.String())
				}
			})
		})
	}
}

// TestMirror_CopyDeleted: if a copy is missing and the place still has later ones, the mirror logs that copies were
// deleted. It adds nothing, and tries again only now and then.
func TestMirror_CopyDeleted(t *testing.T) {
	run(t, func(s *scene) { s.write(2) }, func(s *scene) {
		s.change(func(t *table) { t.gone = t.copies[1].Head() })
		calls := s.calls()
		s.pass(5 * time.Minute)
		if !strings.Contains(s.lines.String(), "none of operation 2: copies were deleted") || s.calls()-calls > 60 || len(s.table.copies) != 2 {
			s.Errorf("%d calls: %s", s.calls()-calls, s.lines.String())
		}
	})
}

// TestMirror_BrokenLog: an entry after a damaged one is not copied.
func TestMirror_BrokenLog(t *testing.T) {
	run(t, func(s *scene) { s.write(2) }, func(s *scene) {
		s.write(2)
		const third = "_sluice/p/ops/00000000000000000003.json"
		r, err := s.store.Get(s.Context(), third, 0, -1)
		if err != nil {
			s.Fatal(err)
		}
		object, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			s.Fatal(err)
		}
		if err := s.store.Delete(s.Context(), third); err != nil {
			s.Fatal(err)
		}
		if err := s.store.Put(s.Context(), third, strings.NewReader(strings.Replace(string(object), "reason 3", "reason 7", 1)), objstore.Replace); err != nil {
			s.Fatal(err)
		}
		s.pass(5 * time.Minute)
		if len(s.table.copies) != 2 {
			s.Errorf("%d copies", len(s.table.copies))
		}
	})
}
