package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// conformance lists tests of a group member that must pass on every cluster. TestGroup runs them on the in-process
// cluster in virtual time, TestGroupLab on a real one.
var conformance = []struct {
	name string
	run  func(*testing.T, *cluster)
}{
	{"JoinAndLeave", testJoinAndLeave},
	{"MissingTopic", testMissingTopic},
	{"PartitionsAdded", testPartitionsAdded},
	{"TopicCreatedAnew", testTopicCreatedAnew},
	{"TopicDeleted", testTopicDeleted},
	{"Matches", testMatches},
	{"Optional", testOptional},
	{"ClaimsStay", testClaimsStay},
	{"Offsets", testOffsets},
	{"CommitFenced", testCommitFenced},
}

// testJoinAndLeave: a second member takes its share of the partitions and no more. When it leaves, the first member
// gets all partitions back. The claims are delivered at the end of each generation as well.
func testJoinAndLeave(_ *testing.T, s *cluster) {
	s.create("t", 5)
	a := s.start(nil, "t")
	s.until("a has all", a.has(5))
	a.told("joined t:0 t:1 t:2 t:3 t:4")

	b := s.start(nil, "t")
	s.until("b has its share", b.has(2))
	s.until("a has its share", a.has(3))
	a.told("apart t:0 t:1 t:2 t:3 t:4", "joined t:0 t:1 t:2")
	b.told("joined t:3 t:4")

	c := s.start(nil, "t")
	s.until("c has its share", c.has(1))
	s.until("a has its share", a.has(2))
	s.until("b has its share", b.has(2))
	a.told("apart t:0 t:1 t:2", "joined t:0 t:1")
	b.told("apart t:3 t:4", "joined t:3 t:4")
	c.told("joined t:2")

	a.stop()
	s.until("b and c have all", func() bool {
		return b.now().Joined && c.now().Joined && len(b.now().Partitions)+len(c.now().Partitions) == 5
	})
	a.told()
	b.forget()
	c.forget()
	keeps := func(m *member, id int32) {
		s.t.Helper()
		for _, p := range m.now().Partitions {
			if p.ID == id {
				return
			}
		}
		s.t.Errorf("partition %d moved without need: %v", id, m.now())
	}
	keeps(b, 3)
	keeps(b, 4)
	keeps(c, 2)
}

// testMissingTopic: the group waits for a missing topic and never creates it, whether it has other topics or not.
func testMissingTopic(t *testing.T, s *cluster) {
	a := s.start(nil, "t", "u")
	s.until("told of nothing", func() bool { return a.logs.count("topics do not exist") > 0 })
	if diff := cmp.Diff([]string{s.prefix + "t", s.prefix + "u"}, a.missing()); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	a.told("apart")

	s.create("t", 2)
	s.until("t is read", a.has(2))
	if diff := cmp.Diff([]string{s.prefix + "u"}, a.missing()); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	a.told("joined t:0 t:1")
	if s.exists("u") {
		t.Error("u was created by waiting for it")
	}

	s.create("u", 1)
	s.until("u is read, too", a.has(3))
	a.told("apart t:0 t:1", "joined t:0 t:1 u:0")
	if missing := a.missing(); len(missing) > 0 {
		t.Errorf("still missing: %v", missing)
	}
}

// testPartitionsAdded: partitions that a topic gets later are read.
func testPartitionsAdded(t *testing.T, s *cluster) {
	s.create("t", 2)
	a, b := s.start(nil, "t"), s.start(nil, "t")
	s.until("both have one", func() bool { return a.has(1)() && b.has(1)() })
	if _, err := s.admin.UpdatePartitions(t.Context(), 4, s.prefix+"t"); err != nil {
		t.Fatal(err)
	}
	s.until("both have two", func() bool { return a.has(2)() && b.has(2)() })
}

// testTopicCreatedAnew: the claims of a topic that is deleted and created again under its name carry the new id.
func testTopicCreatedAnew(t *testing.T, s *cluster) {
	old := s.create("t", 2)
	s.create("u", 1)
	a := s.start(nil, "t", "u")
	s.until("joined", a.has(3))
	if got := topicID(a.now(), s.prefix+"t"); got != old {
		t.Errorf("topic id %v, want %v", got, old)
	}
	s.delete("t")
	id := s.create("t", 2)
	s.until("claims of the new topic", func() bool { return a.has(3)() && topicID(a.now(), s.prefix+"t") == id })
}

func topicID(a connector.Assignment, topic string) (id idempotency.TopicID) {
	for _, p := range a.Partitions {
		if p.Topic == topic {
			id = p.TopicID
		}
	}
	return id
}

// testTopicDeleted: a deleted topic is no longer claimed and is not created again. The other topics continue.
func testTopicDeleted(t *testing.T, s *cluster) {
	s.create("t", 2)
	s.create("u", 1)
	a, b := s.start(nil, "t", "u"), s.start(nil, "t", "u")
	both := func(n int) func() bool {
		return func() bool {
			x, y := a.now(), b.now()
			return x.Joined && y.Joined && len(x.Partitions)+len(y.Partitions) == n
		}
	}
	s.until("joined", both(3))
	s.delete("t")
	s.until("u is left", both(1))
	s.until("both miss t", func() bool {
		return cmp.Equal(a.missing(), []string{s.prefix + "t"}) && cmp.Equal(b.missing(), []string{s.prefix + "t"})
	})
	s.delete("u")
	s.until("nothing is left", func() bool {
		return !a.now().Joined && a.now().Partitions == nil && !b.now().Joined && b.now().Partitions == nil
	})
	if s.exists("t") || s.exists("u") {
		t.Error("a deleted topic was created again")
	}
}

// testMatches: topics that match a pattern are read beside the named ones, from their creation to their deletion.
// Kafka's internal topics never match.
func testMatches(t *testing.T, s *cluster) {
	s.create("t", 1)
	s.create("sales.a", 2)
	s.create("other", 1)
	matches := func(topic string) bool {
		return strings.HasPrefix(topic, s.prefix+"sales.") || strings.HasPrefix(topic, "__")
	}
	a := s.start(func(_ *Config, g *GroupConfig) { g.Matches = matches }, "t", "late")
	s.until("joined", a.has(3))
	a.told("joined sales.a:0 sales.a:1 t:0")
	name := a.newest().member
	appeared := func(want ...string) {
		t.Helper()
		for i := range want {
			want[i] = s.prefix + want[i]
		}
		if d := cmp.Diff(want, a.now().Appeared); d != "" {
			t.Errorf("appeared (-want +got):\n%s", d)
		}
	}
	appeared()
	if d := cmp.Diff([]string{s.prefix + "late"}, a.missing()); d != "" {
		t.Error(d)
	}

	s.create("sales.b", 1)
	s.until("a topic that matches is read", a.has(4))
	appeared("sales.b")
	s.create("late", 1)
	s.until("a topic that was waited for is read", a.has(5))
	appeared("late", "sales.b")

	s.delete("sales.a")
	s.until("a topic that is gone is not read", a.has(3))
	if missing := a.missing(); len(missing) > 0 {
		t.Errorf("nobody named it: %v", missing)
	}
	id := s.create("sales.a", 3)
	s.until("the new one is read", func() bool { return a.has(6)() && topicID(a.now(), s.prefix+"sales.a") == id })
	appeared("late", "sales.b")

	if now := a.newest().member; now != name {
		t.Errorf("the group was left for topics that came and went: member %s, then %s", name, now)
	}

	names, err := a.Topics(t.Context())
	want := []string{s.prefix + "late", s.prefix + "sales.a", s.prefix + "sales.b", s.prefix + "t"}
	if d := cmp.Diff(want, names); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}

	for i := range roomToMatch { // sales.b matches already, so one topic more than there is room for
		s.create(fmt.Sprintf("sales.more%d", i), 1)
	}
	s.until("all are read", a.has(6+roomToMatch))
	if a.newest().member == name {
		t.Error("the room never ends")
	}
}

// testOptional: an optional topic does not count as missing. It is claimed once it exists, and no longer once it is
// deleted. The other topics keep their claims meanwhile.
func testOptional(t *testing.T, s *cluster) {
	s.create("t", 1)
	a := s.start(func(_ *Config, g *GroupConfig) {
		g.Optional = func() []string { return []string{s.prefix + "t-dlq", s.prefix + "u-dlq"} }
	}, "t")
	s.until("joined", a.has(1))
	calm := func() {
		t.Helper()
		if missing := a.missing(); len(missing) > 0 || strings.Contains(a.logs.String(), "do not exist") {
			t.Errorf("%v is missed:\n%s", missing, a.logs)
		}
	}
	calm()
	name := a.newest().member
	s.create("t-dlq", 2)
	s.until("it is read", a.has(3))
	if d := cmp.Diff([]string{s.prefix + "t-dlq"}, a.now().Appeared); d != "" {
		t.Errorf("appeared (-want +got):\n%s", d)
	}
	names, err := a.Topics(t.Context())
	if d := cmp.Diff([]string{s.prefix + "t", s.prefix + "t-dlq"}, names); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	s.delete("t-dlq")
	s.until("it is let go of", a.has(1))
	calm()
	if now := a.newest().member; now != name {
		t.Errorf("the group was left for a topic that came and went: member %s, then %s", name, now)
	}
}

// testClaimsStay: members keep their claims while topics that do not concern them are created and deleted.
func testClaimsStay(t *testing.T, s *cluster) {
	s.create("t", 4)
	matching := func(_ *Config, g *GroupConfig) {
		g.Matches = func(topic string) bool { return strings.HasPrefix(topic, s.prefix+"sales.") }
	}
	a, b := s.start(matching, "t"), s.start(matching, "t")
	s.until("both have two", func() bool { return a.has(2)() && b.has(2)() })
	members := []*member{a, b}
	var kept []string
	for _, m := range members {
		var names []string
		for _, p := range m.now().Partitions {
			names = append(names, strings.TrimPrefix(p.String(), s.prefix))
		}
		kept = append(kept, strings.Join(names, " "))
		m.forget()
	}
	s.create("sales.b", 2)
	s.until("both have three", func() bool { return a.has(3)() && b.has(3)() })
	s.delete("sales.b")
	s.until("both have two again", func() bool { return a.has(2)() && b.has(2)() })
	for i, m := range members {
		m.mu.Lock()
		for _, line := range m.trace {
			if !strings.Contains(line, kept[i]) {
				t.Errorf("member %d lost %s: %s", i, kept[i], line)
			}
		}
		m.mu.Unlock()
	}
}

// testOffsets: committed offsets are read back with the leader epoch from their metadata. Partitions without a
// committed offset are left out, and a member commits only offsets of its claims.
func testOffsets(t *testing.T, s *cluster) {
	s.create("t", 4)
	a := s.start(nil, "t")
	s.until("joined", a.has(4))
	ctx := t.Context()

	topic := s.prefix + "t"
	got, err := a.Offsets(ctx, topic)
	if err != nil || len(got) != 0 {
		t.Errorf("offsets of a new group: %v, %v", got, err)
	}
	claims := a.now().Partitions
	foreign := claims[3]
	foreign.TopicID[0]++
	if err := a.CommitOffsets(ctx, map[connector.Partition]connector.GroupOffset{
		claims[0]: {Next: 17, Epoch: 7}, claims[1]: {Next: 0, Epoch: -1}, foreign: {Next: 5, Epoch: 1},
	}); err != nil {
		t.Fatal(err)
	}
	want := map[int32]connector.GroupOffset{0: {Next: 17, Epoch: 7}, 1: {Next: 0, Epoch: -1}}
	if got, err = a.Offsets(ctx, topic); err != nil || !cmp.Equal(got, want) {
		t.Errorf("offsets %v, %v; want %v", got, err, want)
	}
	raw, err := s.admin.FetchOffsets(ctx, s.prefix+"g")
	if err != nil {
		t.Fatal(err)
	}
	for id, metadata := range map[int32]string{0: "epoch=7", 1: ""} {
		o, _ := raw.Lookup(topic, id)
		if o.Metadata != metadata || o.LeaderEpoch != want[id].Epoch {
			t.Errorf("partition %d: metadata %q, leader epoch %d", id, o.Metadata, o.LeaderEpoch)
		}
	}
	if err := a.CommitOffsets(ctx, map[connector.Partition]connector.GroupOffset{foreign: {Next: 5}}); err != nil {
		t.Errorf("a commit of nothing of ours: %v", err)
	}
	var h *hold.Error
	if _, err := a.Offsets(ctx, s.prefix+"nowhere"); !errors.As(err, &h) || h.Reason != hold.TopicMissing {
		t.Errorf("offsets of a missing topic: %v", err)
	}

	// An offset that another tool committed has no epoch.
	a.stop()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 2, At: 3, LeaderEpoch: 2, Metadata: "epoch=x"})
	offsets.Add(kadm.Offset{Topic: topic, Partition: 3, At: 4, LeaderEpoch: -1, Metadata: "4"})
	if err := s.admin.CommitAllOffsets(ctx, s.prefix+"g", offsets); err != nil {
		t.Fatal(err)
	}
	c := s.start(nil, "t")
	want[2], want[3] = connector.GroupOffset{Next: 3, Epoch: -1}, connector.GroupOffset{Next: 4, Epoch: -1}
	if got, err := c.Offsets(ctx, topic); err != nil || !cmp.Equal(got, want) {
		t.Errorf("offsets %v, %v; want %v", got, err, want)
	}
}

// testCommitFenced: a client that is not a member of the group's current generation cannot commit an offset.
func testCommitFenced(t *testing.T, s *cluster) {
	s.create("t", 1)
	a := s.start(nil, "t")
	s.until("joined", a.has(1))
	offsets := map[connector.Partition]connector.GroupOffset{a.now().Partitions[0]: {Next: 1, Epoch: 0}}
	fenced := func(when string, err error) {
		t.Helper()
		if err == nil || classify.Of(err) != classify.Fenced {
			t.Errorf("%s: %v, want fenced", when, err)
		}
	}

	mine := a.newest()
	old, stranger := mine, mine
	old.id--
	stranger.member = "somebody else"
	for when, g := range map[string]generation{"an old generation": old, "an unknown member": stranger} {
		a.Group.mu.Lock()
		a.Group.last = g
		a.Group.mu.Unlock()
		fenced(when, a.CommitOffsets(t.Context(), offsets))
	}
	a.Group.mu.Lock()
	a.Group.last = mine
	a.Group.mu.Unlock()
	if err := a.CommitOffsets(t.Context(), offsets); err != nil {
		t.Errorf("the member: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Offsets(ctx, s.prefix+"t"); classify.Of(err) != classify.Canceled {
		t.Errorf("after a cancel: %v", err)
	}

	a.stop()
	fenced("after leaving", a.CommitOffsets(t.Context(), offsets))
	client, err := NewClient(Config{Brokers: s.addrs, Dial: s.dial})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fenced("before joining", NewGroup(client, a.cfg, a.logger, nil).CommitOffsets(t.Context(), offsets))
}
