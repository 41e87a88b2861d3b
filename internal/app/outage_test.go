package app

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/health"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/laketest"
	"sluice/reliability"
	"sluice/sink/delta/objstore"
)

// errDown is the error of a dependency that is down.
var errDown = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// errSilent is the error of a dependency that takes a request and does not respond.
var errSilent = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ETIMEDOUT}

// downFingerprints are fingerprints behind the guard of Postgres, which a test can switch off.
type downFingerprints struct {
	idempotency.Store
	guard *reliability.Guard
	down  atomic.Bool
}

// Through implements [idempotency.Store]. Without records it is the only method that a member calls.
func (f *downFingerprints) Through(ctx context.Context, s idempotency.Scope) (n int64, err error) {
	err = f.guard.Do(ctx, func(ctx context.Context) error {
		if f.down.Load() {
			return errDown
		}
		n, err = f.Store.Through(ctx, s)
		return err
	})
	return n, err
}

// cable is the network between the member and Kafka, which a test can cut.
type cable struct {
	network *kfake.VirtualNetwork
	mu      sync.Mutex
	cut     bool
	conns   []net.Conn
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errDown
	}
	conn, err := c.network.DialContext(ctx, network, address)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		for _, conn := range c.conns {
			_ = conn.Close()
		}
		c.conns = nil
	}
}

// downStore is a store that a test can switch off.
type downStore struct {
	objstore.Store
	down atomic.Bool
	// silent is true while versions of tables get no response, and have no effect.
	silent atomic.Bool
}

func (s *downStore) failing() error {
	if s.down.Load() {
		return errDown
	}
	return nil
}

func (s *downStore) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := s.failing(); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key, off, n)
}

func (s *downStore) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.failing(); err != nil {
		return objstore.Info{}, err
	}
	return s.Store.Head(ctx, key)
}

func (s *downStore) Put(ctx context.Context, key string, content io.ReadSeeker, mode objstore.Mode) error {
	if err := s.failing(); err != nil {
		return err
	}
	if s.silent.Load() && strings.Contains(key, "/_delta_log/") {
		return errSilent
	}
	return s.Store.Put(ctx, key, content, mode)
}

func (s *downStore) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	if err := s.failing(); err != nil {
		return func(yield func(objstore.Info, error) bool) { yield(objstore.Info{}, err) }
	}
	return s.Store.List(ctx, prefix, after)
}

// outageScene is a member that reads two partitions, in virtual time. No records arrive: the compressor of data files
// is shared by the whole process, and one that was made in virtual time does not work in other tests.
type outageScene struct {
	*Member
	t     *testing.T
	cable *cable
	store *downStore
	admin *kadm.Client
	out   *laketest.Log
	// prints are the fingerprints, of records by their content.
	prints *downFingerprints
}

// inOutage runs a member until it works, and then calls play.
func inOutage(t *testing.T, play func(s *outageScene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		cluster, err := kfake.NewCluster(kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.NumBrokers(1))
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		s := &outageScene{t: t, cable: &cable{network: network}, store: &downStore{}}
		client, err := kgo.NewClient(kgo.SeedBrokers("localhost:9092"), kgo.Dialer(network.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		s.admin = kadm.NewClient(client)
		if _, err := s.admin.CreateTopic(t.Context(), 2, 1, nil, "orders"); err != nil {
			t.Fatal(err)
		}
		cfg, problems := config.Load(write(t, fmt.Sprintf("pipeline: p\nkafka: {brokers: [\"localhost:9092\"]}\nstorage: {url: \"file://%s\"}\n"+
			"defaults: {schema: \"n int\", commit: {every: 1s}, bad_records: hold, identity: {by: content}}\ntopics: {orders: {}}\n"+
			"fingerprints: {store: postgres, url_file: %q}\n", filepath.ToSlash(t.TempDir()), write(t, "postgres://u@127.0.0.1:1/x"))), func(string) (string, bool) { return "", false })
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		logger, out := laketest.NewLog()
		s.out = out
		s.Member, err = New(t.Context(), cfg, Options{dial: s.cable.dial, store: func(o objstore.Store) objstore.Store {
			s.store.Store = o
			return s.store
		}, fingerprints: func(g *reliability.Guard) idempotency.Store {
			s.prints = &downFingerprints{Store: idempotency.NewMemory(1<<20, nil), guard: g}
			return s.prints
		}}, logger)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Health.Enabled = false // no health server, but still a lag watch: a real socket would stop the virtual time
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		s.passes(time.Minute)
		if r := s.Report(); r.Status() != health.OK && r.Status() != health.Unknown {
			t.Errorf("before the outage: %+v", r.Sum())
		}
		play(s)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.Close()
	})
}

// passes lets virtual time pass.
func (s *outageScene) passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// component returns one component of the health report.
func (s *outageScene) component(name string) health.Component {
	all := s.Report().Components()
	return all[slices.IndexFunc(all, func(c health.Component) bool { return c.Name == name })]
}

// loud returns the number of log lines at WARN and above.
func (s *outageScene) loud() int {
	return strings.Count(s.out.String(), `"level":"WARN"`) + strings.Count(s.out.String(), `"level":"ERROR"`)
}

// counted returns the value of sluice_holds_total for a reason.
func (s *outageScene) counted(reason string) (n float64) {
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "sluice_holds_total" && m.GetLabel()[0].GetValue() == reason {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// TestOutage simulates ten minutes without a dependency and compares what an operator sees. Health must show the outage
// at once, and the hold and the open breaker within a minute. The log must stay short and end with a line about the end
// of the outage.
func TestOutage(t *testing.T) {
	for name, c := range map[string]struct {
		component, reason string
		// The time until health shows the outage; members check an idle table only once a minute.
		known time.Duration
		set   func(s *outageScene, down bool)
		open  func(s *outageScene) bool
	}{
		"kafka": {
			"kafka", "kafka_down", 10 * time.Second, func(s *outageScene, down bool) { s.cable.set(down) },
			func(s *outageScene) bool { return s.kafkaGuard.Status().Open },
		},
		"store": {
			"store", "store_down", 70 * time.Second, func(s *outageScene, down bool) { s.store.down.Store(down) },
			func(s *outageScene) bool { return s.tables.all()[0].storeGuard.Status().Open },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inOutage(t, func(s *outageScene) {
				before := s.loud()
				c.set(s, true)
				s.passes(c.known)
				if k := s.component(c.component); k.Status == health.OK || !strings.Contains(k.Reason, "connection refused") {
					t.Errorf("as soon as it is known: %s, %q", k.Status, k.Reason)
				}
				s.passes(time.Minute - 10*time.Second)
				if !c.open(s) {
					t.Error("within a minute the breaker is closed")
				}
				for _, at := range []time.Duration{2 * time.Minute, 5 * time.Minute, 10 * time.Minute} {
					r := s.Report()
					if sum := r.Sum(); sum.Status != health.Degraded && sum.Status != health.Down || !sum.Ready && !strings.Contains(sum.Reason, "connection refused") {
						t.Errorf("after %v: %s, %q", at, sum.Status, sum.Reason)
					}
					if len(r.Holds) != 2 || r.Holds[0].Reason != c.reason || r.Holds[1].Reason != c.reason {
						t.Errorf("after %v: %+v", at, r.Holds)
					}
					if n := s.counted(c.reason); n != 2 {
						t.Errorf("after %v %v holds are counted", at, n)
					}
					if n := len(s.out.Lines(t, "HOLD")); n != 1 {
						t.Errorf("after %v there are %d HOLD lines", at, n)
					}
					if at < 10*time.Minute {
						s.passes(4 * time.Minute)
					}
				}
				if n := s.loud() - before; n == 0 || n > 40 {
					t.Errorf("ten minutes are %d lines:\n%s", n, s.out)
				}
				c.set(s, false)
				s.passes(3 * time.Minute)
				if r := s.Report(); !r.Sum().Ready || len(r.Holds) > 0 || c.open(s) {
					t.Errorf("after it: %+v", r.Sum())
				}
				if n := len(s.out.Lines(t, "hold ended")); n != 1 {
					t.Errorf("the end is said %d times", n)
				}
			})
		})
	}
}

// TestOutage_NewPartition: a partition is added while one kind of request fails that only resuming its claim makes. The
// member must show the hold of that request, with a line in the log for its begin and its end, and continue once the
// request succeeds.
func TestOutage_NewPartition(t *testing.T) {
	for name, c := range map[string]struct {
		component, reason, detail string
		logged                    []string // the reasons of the holds in the log
		failing                   func(s *outageScene) *atomic.Bool
	}{
		"fingerprints": {
			"fingerprints", "fingerprints_unavailable", "connection refused",
			[]string{"fingerprints_unavailable"},
			func(s *outageScene) *atomic.Bool { return &s.prints.down },
		},
		"versions of the table": {
			"store", "commit_undecided", "the store has not confirmed whether version ",
			[]string{"store_down", "commit_undecided"},
			func(s *outageScene) *atomic.Bool { return &s.store.silent },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inOutage(t, func(s *outageScene) {
				failing := c.failing(s)
				failing.Store(true)
				if _, err := s.admin.UpdatePartitions(s.t.Context(), 3, "orders"); err != nil {
					s.t.Fatal(err)
				}
				for _, after := range []time.Duration{4 * time.Minute, 6 * time.Minute} {
					s.passes(after)
					r := s.Report()
					for _, h := range r.Holds {
						if h.Reason != c.reason || !strings.Contains(h.Detail, c.detail) {
							t.Errorf("%+v", h)
						}
					}
					if n := s.counted(c.reason); len(r.Holds) != 3 || n != 3 {
						t.Errorf("%d holds, %v are counted", len(r.Holds), n)
					}
					if k := s.component(c.component); k.Status == health.OK {
						t.Errorf("%s: %s, %q", k.Name, k.Status, k.Reason)
					}
				}
				failing.Store(false)
				s.passes(3 * time.Minute)
				if r := s.Report(); !r.Sum().Ready || len(r.Holds) > 0 || len(r.Partitions) != 3 {
					t.Errorf("after it: %+v, %+v", r.Sum(), r.Holds)
				}
				for _, msg := range []string{"HOLD", "hold ended"} {
					var logged []string
					for _, line := range s.out.Lines(t, msg) {
						logged = append(logged, fmt.Sprint(line["reason"]))
					}
					if !slices.Equal(logged, c.logged) {
						t.Errorf("%s: %q, want %q\n%s", msg, logged, c.logged, s.out)
					}
				}
			})
		})
	}
}
