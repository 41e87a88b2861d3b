package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/kafka/dial"
	"sluice/reliability/hold"
	"sluice/test/certs"
)

// TestGroupCoordinatorErrors: errors of a coordinator that is starting, has moved, or does not know this member only
// delay the join.
func TestGroupCoordinatorErrors(t *testing.T) {
	for _, tt := range []struct {
		key kmsg.Key
		err *kerr.Error
	}{
		{kmsg.FindCoordinator, kerr.CoordinatorNotAvailable},
		{kmsg.JoinGroup, kerr.CoordinatorLoadInProgress},
		{kmsg.JoinGroup, kerr.NotCoordinator},
		{kmsg.JoinGroup, kerr.UnknownMemberID},
		{kmsg.SyncGroup, kerr.RebalanceInProgress},
		{kmsg.SyncGroup, kerr.CoordinatorNotAvailable},
		{kmsg.Heartbeat, kerr.IllegalGeneration},
		{kmsg.Heartbeat, kerr.UnknownMemberID},
		{kmsg.Heartbeat, kerr.NotCoordinator},
		{kmsg.Heartbeat, kerr.RebalanceInProgress},
	} {
		t.Run(tt.key.Name()+" "+tt.err.Message, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *cluster) {
				s.create("t", 2)
				fault := s.fake.Fault(kfake.Fault{Keys: []kmsg.Key{tt.key}, Err: tt.err, Count: 3})
				a := s.start(nil, "t")
				s.until("the coordinator has failed", func() bool { return fault.Hits() == 3 })
				s.until("joined", a.has(2))
				if took := a.stop(); took > time.Second {
					t.Errorf("left in %v", took)
				}
			})
		})
	}
}

// TestGroupCoordinatorMoves: members join again at a new coordinator. The coordinator does not make them wait for a
// member id that kafka-go no longer uses.
func TestGroupCoordinatorMoves(t *testing.T) {
	inBubble(t, func(_ *testing.T, s *cluster) {
		s.create("t", 4)
		a, b := s.start(nil, "t"), s.start(nil, "t")
		both := func() bool { return a.has(2)() && b.has(2)() }
		s.until("joined", both)
		before := []connector.Assignment{a.now(), b.now()}
		rejoins := func() int { return a.logs.count("msg=joined") + b.logs.count("msg=joined") }
		n := rejoins()
		began := time.Now()
		for node := s.fake.CoordinatorFor("g"); s.fake.CoordinatorFor("g") == node; {
			s.fake.RehashCoordinators()
		}
		s.until("joined again", func() bool { return rejoins() >= n+2 && both() })
		// The bound has room for two heartbeats and some pauses, and is well below the session timeout of 30 s.
		if took := time.Since(began); took > 12*time.Second {
			s.t.Errorf("took %v\na:\n%s\nb:\n%s", took, a.logs, b.logs)
		}
		if diff := cmp.Diff(before, []connector.Assignment{a.now(), b.now()}); diff != "" {
			s.t.Errorf("partitions moved (-before +after):\n%s", diff)
		}
	})
}

// TestGroupHungCoordinator: if the coordinator hangs (it accepts connections and never answers), all members join again
// soon after another broker has become the coordinator. That includes members that first connect to the hung broker.
func TestGroupHungCoordinator(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 6)
		brokers := &stage{dial: s.dial, stopped: map[string]bool{}}
		var members []*member
		for range 6 {
			members = append(members, s.start(func(c *Config, _ *GroupConfig) { c.Dial = brokers.connect }, "t"))
		}
		rejoins := func() (n int) {
			for _, m := range members {
				n += m.logs.count("msg=joined")
			}
			return n
		}
		all := func() bool {
			for _, m := range members {
				if !m.has(1)() {
					return false
				}
			}
			return true
		}
		s.until("joined", all)
		n, node, began := rejoins(), s.fake.CoordinatorFor("g"), time.Now()
		brokers.stop(s.addrs[node])
		time.Sleep(9 * time.Second)
		for s.fake.CoordinatorFor("g") == node {
			s.fake.RehashCoordinators()
		}
		s.until("joined again", func() bool { return rejoins() >= n+6 && all() })
		// A heartbeat lasts 15 s at most. After two failed attempts of three, all members have usually joined within 28
		// s. A member that misses a generation makes the others wait, at most for the rebalance timeout.
		if took := time.Since(began); took > 45*time.Second+2*time.Minute {
			t.Errorf("took %v", took)
		}
		brokers.resume(s.addrs[node])
	})
}

// TestGroupClusterRestarts: while the cluster is down the member keeps its claims. When the cluster is back it gets the
// same claims again.
func TestGroupClusterRestarts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		boot := func() *kfake.Cluster {
			c, err := kfake.NewCluster(kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.DataDir(dir))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		first := boot()
		s := newScene(t, []string{"localhost:9092"}, network.DialContext)
		s.create("t", 3)
		a := s.start(nil, "t")
		s.until("joined", a.has(3))
		claims := a.now().Partitions
		first.Close()
		s.until("the end is noticed", func() bool { return !a.now().Joined })
		time.Sleep(10 * time.Minute)
		if n := a.logs.count("\n"); n > 150 {
			t.Errorf("%d log lines in ten minutes", n)
		}
		second := boot()
		defer second.Close()
		s.until("joined again", a.has(3))
		if diff := cmp.Diff(claims, a.now().Partitions); diff != "" {
			t.Errorf("claims (-before +after):\n%s", diff)
		}
		a.told("joined t:0 t:1 t:2", "apart t:0 t:1 t:2", "joined t:0 t:1 t:2")
	})
}

// TestGroupHeartbeatLost: a member whose heartbeats get lost keeps its claims, although the coordinator assigns them to
// another member meanwhile. It joins again later.
func TestGroupHeartbeatLost(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 4)
		a := s.start(nil, "t")
		s.until("a joined", a.has(4))
		b := s.start(nil, "t")
		s.until("both joined", func() bool { return a.has(2)() && b.has(2)() })
		a.forget()
		b.forget()

		a.mute.Store(true)
		began := time.Now()
		s.until("b has all", b.has(4))
		if took := time.Since(began); took < 25*time.Second || took > 40*time.Second {
			t.Errorf("took over after %v, the session is 30 s", took)
		}
		a.told("apart t:0 t:1")
		b.told("apart t:2 t:3", "joined t:0 t:1 t:2 t:3")

		a.mute.Store(false)
		s.until("both have two", func() bool { return a.has(2)() && b.has(2)() })
		a.told("joined t:0 t:1") // b owned all four partitions last, but must give two of them to a
	})
}

// TestGroupForgottenMember: when kafka-go joins under a new member id after an error, the coordinator does not wait for
// the member with the old id.
func TestGroupForgottenMember(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 4)
		a, b := s.start(nil, "t"), s.start(nil, "t")
		both := func() bool { return a.has(2)() && b.has(2)() }
		s.until("joined", both)
		name, before := a.newest().member, a.now()
		mine := func(r kmsg.Request) bool {
			switch r := r.(type) {
			case *kmsg.HeartbeatRequest:
				return r.MemberID == name
			case *kmsg.JoinGroupRequest:
				return r.MemberID == name
			}
			return false
		}
		s.fake.Fault(
			kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, When: mine, Err: kerr.RebalanceInProgress},
			kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, When: mine, Err: kerr.CoordinatorLoadInProgress},
		)
		began := time.Now()
		s.until("joined under another name", func() bool { return both() && a.newest().member != name })
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("took %v; the session is 30 s", took)
		}
		if diff := cmp.Diff(before, a.now()); diff != "" {
			t.Errorf("partitions moved (-before +after):\n%s", diff)
		}
	})
}

// TestGroupLeaderMissesTopic: if a topic is deleted while a generation forms, the group's leader still assigns the
// partitions of the other topics.
func TestGroupLeaderMissesTopic(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 2)
		s.create("u", 2)
		patient := func(_ *Config, g *GroupConfig) { g.WatchEvery = time.Hour }
		a := s.start(patient, "t", "u")
		s.until("joined", a.has(4))
		s.delete("t")
		b := s.start(patient, "u")
		s.until("u is dealt out", func() bool {
			return a.now().Joined && b.has(1)() && slices.ContainsFunc(a.now().Partitions, func(p connector.Partition) bool { return p.Topic == "u" })
		})
		if s.exists("t") {
			t.Error("the leader created the topic")
		}
	}, kfake.AllowAutoTopicCreation())
}

// TestGroupOldMetadata: a broker that does not know yet of a topic, or of new partitions, does not end the generation.
func TestGroupOldMetadata(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 2)
		a := s.start(nil, "t")
		s.until("joined", a.has(2))
		once := s.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.UnknownTopicOrPartition})
		s.until("a look is answered wrong", func() bool { return once.Hits() > 0 })
		time.Sleep(5 * time.Minute)
		a.told("joined t:0 t:1")
		if missing := a.missing(); len(missing) > 0 {
			t.Errorf("still missing: %v", missing)
		}
	})
}

// TestGroupMetrics: after a failed join, a rebalance and a new topic, the metrics of the group have counted each of
// them. After the member has left, sluice_group_joined is 0.
func TestGroupMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 2)
		a := s.start(nil, "t", "u")
		s.until("joined", a.has(2))
		s.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.IllegalGeneration})
		s.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SyncGroup}, Err: kerr.NotCoordinator})
		s.until("joined again", func() bool { return a.newest().id > 1 && a.has(2)() })
		s.create("u", 1)
		s.until("joined again", a.has(3))
		want := map[string]float64{
			"sluice_group_generations_total":               3,
			"sluice_group_join_failures_total":             1,
			"sluice_group_joined":                          1,
			"sluice_group_missing_topics":                  0,
			"sluice_group_rejoins_total{reason=rebalance}": 1,
			"sluice_group_rejoins_total{reason=topics}":    1,
		}
		if diff := cmp.Diff(want, a.metricValues()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		a.stop()
		if got := a.metricValues()["sluice_group_joined"]; got != 0 {
			t.Errorf("joined %v after leaving", got)
		}
	})
}

// TestGroupHungAuthentication: if a broker does not answer during authentication, the attempt to join fails after the
// time limit, and the member tries again.
func TestGroupHungAuthentication(t *testing.T) {
	inBubble(t, func(_ *testing.T, s *cluster) {
		a := s.start(func(c *Config, _ *GroupConfig) {
			c.SASL = &dial.SASL{Mechanism: dial.Plain, Username: "sluice", Password: "right", InsecurePlaintext: true}
		}, "t")
		s.until("joined", a.has(2))
		var hung atomic.Bool
		hung.Store(true)
		s.fake.ControlKey(int16(kmsg.SASLHandshake), func(kmsg.Request) (kmsg.Response, error, bool) {
			s.fake.KeepControl()
			return nil, nil, hung.Load()
		})
		s.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.IllegalGeneration})
		s.until("the generation ended", func() bool { return !a.now().Joined })
		s.until("joining fails", func() bool { return a.logs.count("failed to join the group") > 0 })
		hung.Store(false)
		s.until("joined again", a.has(2))
	}, kfake.EnableSASL(), kfake.Superuser("PLAIN", "sluice", "right"), kfake.SeedTopics(2, "t"))
}

// TestGroupRefused: a refusal that an operator must fix ends Run with its hold. Run can be called again.
func TestGroupRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fault  kfake.Fault
		change func(*Config, *GroupConfig)
		want   hold.Reason
		says   string
	}{
		{"group", kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.GroupAuthorizationFailed, Count: -1}, nil, hold.KafkaDenied, "joining the group g is refused: "},
		{"topic", kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1}, nil, hold.KafkaDenied, "is refused: "},
		{
			"foreign group",
			kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.InconsistentGroupProtocol, Count: -1},
			nil, hold.KafkaDown,
			"joining the group g is refused: another consumer with other assignors is in this group; give this pipeline a group of its own (kafka.group)",
		},
		{"session", kfake.Fault{Observe: true}, func(_ *Config, g *GroupConfig) { g.Session = time.Second }, hold.KafkaDown, "needs a person"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *cluster) {
				s.create("t", 2)
				fault := s.fake.Fault(tt.fault)
				a := s.start(tt.change, "t")
				<-a.ended
				var h *hold.Error
				if !errors.As(a.err, &h) || h.Reason != tt.want || classify.Of(a.err) != classify.Fatal || !strings.Contains(h.Detail, tt.says) {
					t.Fatalf("run: %v, want %v: %s", a.err, tt.want, tt.says)
				}
				fault.Remove()
				a.cfg.Session = defaultSession
				again := s.rerun(a)
				s.until("joined", a.has(2))
				again()
			})
		})
	}
}

// TestGroupOneRefused: a topic that the member may not describe is held while the others are read. It is read as soon
// as the permission is granted, and its claims stay if the permission is lost again.
func TestGroupOneRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 2)
		s.create("secret", 1)
		refused := kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "secret", Err: kerr.TopicAuthorizationFailed, Count: -1}
		fault := s.fake.Fault(refused)
		a := s.start(nil, "t", "secret")
		s.until("joined", a.has(2))
		absent := a.Absent()
		if len(absent) != 1 || absent[0].Topic != "secret" || absent[0].Reason != hold.KafkaDenied || absent[0].Since.IsZero() {
			t.Errorf("absent: %+v", absent)
		}
		since := absent[0].Since
		s.until("a second look", func() bool { return time.Since(since) > 3*time.Minute/2 })
		if again := a.Absent(); len(again) != 1 || !again[0].Since.Equal(since) {
			t.Errorf("since: %+v, first %v", again, since)
		}
		fault.Remove()
		s.until("both are read", a.has(3))
		if absent := a.Absent(); len(absent) > 0 {
			t.Errorf("absent: %+v", absent)
		}
		if len(a.now().Appeared) > 0 {
			t.Errorf("appeared: %v; it was there all the time", a.now().Appeared)
		}
		a.forget()
		fault = s.fake.Fault(refused)
		s.until("looks are refused", func() bool { return fault.Hits() >= 2 })
		a.told()
	})
}

// TestGroupCommitErrors: if a response has an error code for one partition, the error of CommitOffsets or Offsets has
// the class of that code.
func TestGroupCommitErrors(t *testing.T) {
	for _, tt := range []struct {
		err  *kerr.Error
		want classify.Class
	}{
		{kerr.NotCoordinator, classify.Transient},
		{kerr.CoordinatorLoadInProgress, classify.Transient},
		{kerr.IllegalGeneration, classify.Fenced},
		{kerr.RebalanceInProgress, classify.Fenced},
		{kerr.UnknownMemberID, classify.Fenced},
		{kerr.GroupAuthorizationFailed, classify.Fatal},
	} {
		t.Run(tt.err.Message, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *cluster) {
				s.create("t", 2)
				a := s.start(nil, "t")
				s.until("joined", a.has(2))
				s.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit, kmsg.OffsetFetch}, Topic: "t", Partitions: []int32{1}, Err: tt.err, Count: 2})
				offsets := map[connector.Partition]connector.GroupOffset{}
				for _, p := range a.now().Partitions {
					offsets[p] = connector.GroupOffset{Next: 1}
				}
				if err := a.CommitOffsets(t.Context(), offsets); err == nil || classify.Of(err) != tt.want {
					t.Errorf("commit: %v, want %v", err, tt.want)
				}
				if _, err := a.Offsets(t.Context(), "t"); err == nil || classify.Of(err) != tt.want {
					t.Errorf("offsets: %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// TestGroupDeadlines: in a hung cluster each exchange ends after its timeout.
func TestGroupDeadlines(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 1)
		a := s.start(nil, "t")
		s.until("joined", a.has(1))
		if _, err := a.Offsets(t.Context(), "t"); err != nil { // opens the connection
			t.Fatal(err)
		}
		a.mute.Store(true)
		for name, do := range map[string]func() error{
			"commit": func() error {
				return a.CommitOffsets(t.Context(), map[connector.Partition]connector.GroupOffset{a.now().Partitions[0]: {Next: 1}})
			},
			"offsets": func() error { _, err := a.Offsets(t.Context(), "t"); return err },
		} {
			began := time.Now()
			err := do()
			if err == nil || classify.Of(err) != classify.Transient {
				t.Errorf("%s: %v, want transient", name, err)
			}
			if took := time.Since(began); took > 40*time.Second {
				t.Errorf("%s: took %v", name, took)
			}
		}
	})
}

// TestGroupSlowDelivery: a slow receiver of assignments does not cost the member its membership.
func TestGroupSlowDelivery(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 2)
		a := s.start(nil, "t")
		s.until("joined", a.has(2))
		a.slow.Store(int64(5 * time.Minute))
		b := s.start(nil, "t") // b joins, which ends the generation of a; a's deliveries are slow
		s.until("a learns of it", func() bool { return !a.now().Joined })
		s.until("b joined", b.has(1))
		time.Sleep(4 * time.Minute)
		if n := len(describe(s)); n != 2 {
			t.Errorf("%d members, want 2", n)
		}
		b.told("joined t:1")
	})
}

// TestGroupUnreachable: the member tries an unreachable cluster again with growing pauses and few log lines. To leave
// the group it needs no answer of the cluster.
func TestGroupUnreachable(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		var attempts atomic.Int32
		a := s.start(func(c *Config, _ *GroupConfig) {
			c.Dial = func(context.Context, string, string) (net.Conn, error) {
				attempts.Add(1)
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}
		}, "t")
		time.Sleep(5 * time.Minute)
		// Each attempt asks two brokers on two connections each. Jitter shortens a pause by at most a quarter.
		if n := attempts.Load(); n < 20 || n > 4*130 {
			t.Errorf("%d attempts in five minutes", n)
		}
		if n := a.logs.count("; retrying"); n != 2 {
			t.Errorf("%d lines in five minutes: one at once, one after a minute", n)
		}
		if took := a.stop(); took > time.Second || a.err != nil {
			t.Errorf("left in %v: %v", took, a.err)
		}
		a.told()
	})
}

// TestGroupMissingLog: missing topics are logged at once, after a minute, and then every five minutes.
func TestGroupMissingLog(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		a := s.start(nil, "t")
		time.Sleep(30 * time.Minute)
		if n := a.logs.count("topics do not exist"); n < 6 || n > 8 {
			t.Errorf("mentioned %d times in half an hour", n)
		}
		a.told("apart")
	})
}

// TestGroupSecure: the connections of the group use TLS and SASL, and credentials that the brokers refuse are reported
// as a refusal.
func TestGroupSecure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ca := certs.NewCA(t, "ours")
		trusted := certs.Write(t, dir, "ca.pem", ca.PEM)
		strange := certs.Write(t, dir, "other.pem", certs.NewCA(t, "theirs").PEM)

		network := &kfake.VirtualNetwork{}
		fake, err := kfake.NewCluster(kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(2, "t"),
			kfake.TLS(&tls.Config{Certificates: []tls.Certificate{ca.Issue(t, certs.Leaf{Hosts: []string{"localhost"}}).TLS(t)}}),
			kfake.EnableSASL(), kfake.Superuser("PLAIN", "sluice", "right"))
		if err != nil {
			t.Fatal(err)
		}
		defer fake.Close()
		s := newScene(t, []string{"localhost:9092"}, network.DialContext)
		with := func(ca, password string) func(*Config, *GroupConfig) {
			return func(c *Config, _ *GroupConfig) {
				c.TLS = &dial.TLS{CAFile: ca}
				c.SASL = &dial.SASL{Mechanism: dial.Plain, Username: "sluice", Password: password}
			}
		}
		a := s.start(with(trusted, "right"), "t")
		s.until("joined", a.has(2))
		a.stop()

		b := s.start(with(strange, "right"), "t")
		<-b.ended
		var (
			h   *hold.Error
			why *dial.Error
		)
		if !errors.As(b.err, &h) || h.Reason != hold.KafkaDenied ||
			!errors.As(b.err, &why) || why.Cause != dial.UnknownCA {
			t.Errorf("unknown authority: %v", b.err)
		}
	})
}
