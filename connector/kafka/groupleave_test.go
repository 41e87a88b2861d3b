package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hang makes the cluster leave requests of these kinds unanswered, except the first request of a connection. Without
// kinds, it leaves all requests unanswered.
func hang(s *cluster, keys ...kmsg.Key) {
	s.fake.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		s.fake.KeepControl()
		opening := kmsg.Key(r.Key()) == kmsg.Metadata && r.GetVersion() == 1 // the first request of a new connection
		return nil, nil, len(keys) == 0 || slices.Contains(keys, kmsg.Key(r.Key())) && !opening
	})
}

const leaveBound = defaultLeave + 10*time.Millisecond

// TestGroupLeavesHungCluster: while the cluster hangs, a member leaves within leaveBound during every operation, and no
// goroutine remains.
func TestGroupLeavesHungCluster(t *testing.T) {
	check := func(s *cluster, m *member) {
		s.t.Helper()
		if took := m.stop(); took > leaveBound {
			s.t.Errorf("left in %v", took)
		}
		if m.err != nil {
			s.t.Errorf("run: %v", m.err)
		}
	}
	t.Run("Joined", func(t *testing.T) {
		inBubble(t, func(_ *testing.T, s *cluster) {
			s.create("t", 2)
			a := s.start(nil, "t")
			s.until("joined", a.has(2))
			hang(s)
			check(s, a)
		})
	})
	for _, key := range []kmsg.Key{kmsg.Metadata, kmsg.FindCoordinator, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.ApiVersions} {
		t.Run(key.Name(), func(t *testing.T) {
			inBubble(t, func(_ *testing.T, s *cluster) {
				s.create("t", 2)
				hang(s, key)
				a := s.start(nil, "t")
				time.Sleep(2 * time.Second)
				check(s, a)
			})
		})
	}
	t.Run("Rebalance", func(t *testing.T) { // the coordinator waits for a silent member
		inBubble(t, func(_ *testing.T, s *cluster) {
			s.create("t", 2)
			a := s.start(nil, "t")
			s.until("joined", a.has(2))
			a.mute.Store(true)
			b := s.start(nil, "t")
			time.Sleep(2 * time.Second)
			check(s, b)
			check(s, a)
		})
	})
}

// TestGroupLeavesAtOnce: when a member leaves, the other members get its partitions without waiting until its session
// expires, even if it leaves during a rebalance.
func TestGroupLeavesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 4)
		a := s.start(nil, "t")
		s.until("a joined", a.has(4))
		silent := s.start(nil, "t")
		s.until("both joined", func() bool { return a.has(2)() && silent.has(2)() })
		silent.mute.Store(true)
		b := s.start(nil, "t") // now all members wait for the silent one
		s.until("the generation ended", func() bool { return !a.now().Joined })
		time.Sleep(time.Second)
		name := a.newest().member
		a.stop()
		if slices.Contains(describe(s), name) {
			t.Error("still a member")
		}
		s.until("b has all", b.has(4))
		for _, g := range describe(s) {
			if g != b.newest().member {
				t.Errorf("still a member: %s", g)
			}
		}
	})
}

// TestGroupLeavesWithoutJoining: a member that is stopped leaves the group without joining another generation first.
func TestGroupLeavesWithoutJoining(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 4)
		a, b := s.start(nil, "t"), s.start(nil, "t")
		s.until("joined", func() bool { return a.has(2)() && b.has(2)() })
		name := a.newest().member
		joins := s.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Observe: true, Count: -1, When: func(r kmsg.Request) bool {
			return r.(*kmsg.JoinGroupRequest).MemberID != b.newest().member
		}})
		if took := a.stop(); took > 0 {
			t.Errorf("left in %v", took)
		}
		if slices.Contains(describe(s), name) {
			t.Error("still a member")
		}
		s.until("b has all", b.has(4))
		if joins.Hits() > 0 {
			t.Error("joined once more")
		}
	})
}

// TestGroupLeavesWhileJoining: a member that is stopped while it prepares a join leaves without sending the join.
func TestGroupLeavesWhileJoining(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 4)
		a, b := s.start(nil, "t"), s.start(nil, "t")
		s.until("joined", func() bool { return a.has(2)() && b.has(2)() })
		name := a.newest().member
		hang(s, kmsg.Metadata)
		s.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.RebalanceInProgress, When: func(r kmsg.Request) bool {
			return r.(*kmsg.HeartbeatRequest).MemberID == name
		}})
		s.until("the generation ended", func() bool { return !a.now().Joined })
		time.Sleep(time.Second)
		if took := a.stop(); took > 0 {
			t.Errorf("left in %v", took)
		}
		if slices.Contains(describe(s), name) {
			t.Error("still a member")
		}
	})
}

// TestGroupLeavesBlackHole: a member leaves within the bound even if its dials get no answer.
func TestGroupLeavesBlackHole(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 1)
		a := s.start(nil, "t")
		s.until("joined", a.has(1))
		a.black.Store(true)
		s.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.IllegalGeneration})
		s.until("the generation ended", func() bool { return !a.now().Joined })
		if took := a.stop(); took > leaveBound {
			t.Errorf("left in %v", took)
		}
	})
}

// describe returns the members that the coordinator knows.
func describe(s *cluster) (members []string) {
	groups, err := s.admin.DescribeGroups(s.t.Context(), s.prefix+"g")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range groups[s.prefix+"g"].Members {
		members = append(members, m.MemberID)
	}
	return members
}
