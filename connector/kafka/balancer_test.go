package kafka

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"
)

// drawGroup draws topics and members. If equal is true, all members subscribe to all topics. The partitions that a
// member reports as owned may be stale, contradict those of other members, or be of topics to which it no longer
// subscribes.
func drawGroup(t *rapid.T, maxMembers, maxTopics, maxPartitions int, equal bool) ([]claimant, map[string][]int32) {
	topics := make(map[string][]int32)
	for i := range rapid.IntRange(1, maxTopics).Draw(t, "topics") {
		ids := []int32{}
		for id := range rapid.Int32Range(0, int32(maxPartitions)).Draw(t, "partitions") {
			ids = append(ids, id)
		}
		topics[fmt.Sprintf("t%d", i)] = ids
	}
	names := slices.Sorted(maps.Keys(topics))
	members := make([]claimant, rapid.IntRange(1, maxMembers).Draw(t, "members"))
	for i := range members {
		m := &members[i]
		m.id = fmt.Sprintf("m%d", i)
		m.last = owned{generation: rapid.Int32Range(0, 3).Draw(t, "generation"), partitions: share{}}
		for _, name := range names {
			if equal || rapid.Bool().Draw(t, "subscribed") {
				m.topics = append(m.topics, name)
			}
			for id := range int32(maxPartitions) + 1 {
				if rapid.IntRange(0, 2).Draw(t, "claimed") == 0 {
					m.last.partitions[name] = append(m.last.partitions[name], id)
				}
			}
		}
	}
	return members, topics
}

// settle returns the members as they are after an assignment: each owned its share last.
func settle(members []claimant, shares map[string]share, generation int32) []claimant {
	next := slices.Clone(members)
	for i := range next {
		next[i].last = owned{generation, shares[next[i].id]}
	}
	return next
}

func load(s share) (n int) {
	for _, ids := range s {
		n += len(ids)
	}
	return n
}

// moved counts the partitions that a member owned last and does not own now.
func moved(members []claimant, now map[string]share) (n int) {
	for _, m := range members {
		for topic, ids := range m.last.partitions {
			for _, id := range ids {
				if !slices.Contains(now[m.id][topic], id) {
					n++
				}
			}
		}
	}
	return n
}

// TestBalanceComplete: each partition with a subscriber belongs to exactly one of them.
func TestBalanceComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, topics := drawGroup(t, 6, 4, 8, false)
		got := balance(members, topics)
		if len(got) != len(members) {
			t.Fatalf("%d of %d members have a share", len(got), len(members))
		}
		holders := map[string]map[int32][]string{}
		for _, m := range members {
			for topic, ids := range got[m.id] {
				if !slices.Contains(m.topics, topic) {
					t.Fatalf("%s does not subscribe to %s", m.id, topic)
				}
				for _, id := range ids {
					if holders[topic] == nil {
						holders[topic] = map[int32][]string{}
					}
					holders[topic][id] = append(holders[topic][id], m.id)
				}
			}
		}
		for topic, ids := range topics {
			want := 0
			if slices.ContainsFunc(members, func(m claimant) bool { return slices.Contains(m.topics, topic) }) {
				want = 1
			}
			for _, id := range ids {
				if n := len(holders[topic][id]); n != want {
					t.Fatalf("%s-%d has %d holders, want %d: %v", topic, id, n, want, got)
				}
				delete(holders[topic], id)
			}
			if len(holders[topic]) > 0 {
				t.Fatalf("%s: partitions that do not exist: %v", topic, holders[topic])
			}
		}
	})
}

// TestBalanceEven: no assignment is more even than the balancer's. The test compares it with the best of all possible
// assignments.
func TestBalanceEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, topics := drawGroup(t, 4, 3, 5, rapid.Bool().Draw(t, "equal"))
		square := func(loads []int) (n int) {
			for _, l := range loads {
				n += l * l
			}
			return n
		}
		names := slices.Sorted(maps.Keys(topics))
		seen := map[string]int{}
		var best func(topic int, left int, loads []int, from int) int
		best = func(topic, left int, loads []int, from int) int {
			if topic == len(names) {
				return square(loads)
			}
			next := 0
			if topic+1 < len(names) {
				next = len(topics[names[topic+1]])
			}
			if left == 0 {
				return best(topic+1, next, loads, 0)
			}
			key := fmt.Sprint(topic, left, loads, from)
			if n, ok := seen[key]; ok {
				return n
			}
			least := -1
			for m := from; m < len(members); m++ {
				if slices.Contains(members[m].topics, names[topic]) {
					loads[m]++
					if n := best(topic, left-1, loads, m); least < 0 || n >= 0 && n < least {
						least = n
					}
					loads[m]--
				}
			}
			if least < 0 && from == 0 { // the topic has no subscriber, so its partitions are left out
				least = best(topic+1, next, loads, 0)
			}
			seen[key] = least
			return least
		}
		want := best(0, len(topics[names[0]]), make([]int, len(members)), 0)
		var loads []int
		for _, s := range balance(members, topics) {
			loads = append(loads, load(s))
		}
		if got := square(loads); got != want {
			t.Fatalf("loads %v: squares sum to %d, %d is possible", loads, got, want)
		}
	})
}

// TestBalanceSticky: with equal subscriptions the numbers of partitions per member differ by at most one. No other
// assignment that is as even lets members keep more of their partitions.
func TestBalanceSticky(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, topics := drawGroup(t, 6, 4, 8, true)
		got := balance(members, topics)

		total, had := 0, map[string]int{}
		newest := map[string]string{} // maps a partition to the member that owned it last
		generation := map[string]int32{}
		for topic, ids := range topics {
			total += len(ids)
			for _, id := range ids {
				// In the order of their ids: if two report the same generation, the first one counts.
				for _, m := range members {
					name := fmt.Sprintf("%s-%d", topic, id)
					if slices.Contains(m.last.partitions[topic], id) &&
						(newest[name] == "" || generation[name] < m.last.generation) {
						newest[name], generation[name] = m.id, m.last.generation
					}
				}
			}
		}
		for _, id := range newest {
			had[id]++
		}
		low, extra := total/len(members), total%len(members)
		want, above := 0, 0
		for _, m := range members {
			if l := load(got[m.id]); l != low && l != low+1 || l > low && extra == 0 {
				t.Fatalf("%s has %d of %d among %d", m.id, l, total, len(members))
			}
			want += min(had[m.id], low)
			if had[m.id] > low {
				above++
			}
		}
		want += min(above, extra)
		kept := 0
		for topic, ids := range topics {
			for _, id := range ids {
				if m := newest[fmt.Sprintf("%s-%d", topic, id)]; m != "" && slices.Contains(got[m][topic], id) {
					kept++
				}
			}
		}
		if kept != want {
			t.Fatalf("kept %d partitions, %d are possible: %v", kept, want, got)
		}
	})
}

// TestBalanceStays: the same members with the same subscriptions get the same partitions again.
func TestBalanceStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, topics := drawGroup(t, 6, 4, 8, false)
		first := balance(members, topics)
		if diff := cmp.Diff(first, balance(settle(members, first, 7), topics)); diff != "" {
			t.Fatalf("moved without a reason (-first +second):\n%s", diff)
		}
	})
}

// TestBalanceJoinLeave: a new member takes its share and no more. When a member leaves, the remaining members keep all
// of their partitions.
func TestBalanceJoinLeave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, topics := drawGroup(t, 6, 4, 8, true)
		members = settle(members, balance(members, topics), 7)
		total := 0
		for _, ids := range topics {
			total += len(ids)
		}

		newcomer := claimant{id: rapid.SampledFrom([]string{"a", "m2x", "z"}).Draw(t, "id"), topics: members[0].topics}
		joined := append(slices.Clone(members), newcomer)
		after := balance(joined, topics)
		if n, want := moved(members, after), total/len(joined); n != want {
			t.Fatalf("join: %d partitions moved, want %d", n, want)
		}

		joined = settle(joined, after, 8)
		leaver := rapid.IntRange(0, len(joined)-1).Draw(t, "leaver")
		left := slices.Delete(slices.Clone(joined), leaver, leaver+1)
		if n := moved(left, balance(left, topics)); n != 0 {
			t.Fatalf("leave: %d partitions of those who stay moved", n)
		}
	})
}

// TestBalanceDeterministic: every leader computes the same result, for every order of the members and partitions.
func TestBalanceDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, topics := drawGroup(t, 6, 4, 8, false)
		first := balance(members, topics)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		members = slices.Clone(members)
		r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		for i := range members {
			members[i].topics = slices.Clone(members[i].topics)
			slices.Reverse(members[i].topics)
		}
		shuffled := map[string][]int32{}
		for topic, ids := range topics {
			ids = append(slices.Clone(ids), ids...) // lists each partition twice
			r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			shuffled[topic] = ids
		}
		if diff := cmp.Diff(first, balance(members, shuffled)); diff != "" {
			t.Fatalf("depends on the order (-first +second):\n%s", diff)
		}
	})
}

func TestBalanceExamples(t *testing.T) {
	four := []int32{0, 1, 2, 3}
	for _, tt := range []struct {
		name    string
		members []claimant
		topics  map[string][]int32
		want    map[string]share
	}{
		{
			"the newer generation had it",
			[]claimant{
				{"stale", []string{"t"}, owned{3, share{"t": {0, 1}}}},
				{"newer", []string{"t"}, owned{4, share{"t": {0, 2}}}},
			},
			map[string][]int32{"t": four},
			map[string]share{"stale": {"t": {1, 3}}, "newer": {"t": {0, 2}}},
		},
		{
			"back to the member that had it before",
			[]claimant{
				{"b", []string{"t"}, owned{4, share{"t": four}}},
				{"silent", []string{"t"}, owned{3, share{"t": {0, 1}}}},
			},
			map[string][]int32{"t": four},
			map[string]share{"b": {"t": {2, 3}}, "silent": {"t": {0, 1}}},
		},
		{
			"more members than partitions",
			[]claimant{{id: "a", topics: []string{"t"}}, {id: "b", topics: []string{"t"}}},
			map[string][]int32{"t": {0}},
			map[string]share{"a": {"t": {0}}, "b": {}},
		},
		{
			"a topic that only one of them has noticed",
			[]claimant{{id: "a", topics: []string{"t", "u"}}, {id: "b", topics: []string{"t"}}},
			map[string][]int32{"t": four, "u": {0, 1, 2, 3}},
			map[string]share{"a": {"u": four}, "b": {"t": four}},
		},
		{
			"by way of a third",
			[]claimant{
				{"a", []string{"t"}, owned{1, share{"t": four}}},
				{"b", []string{"t", "u"}, owned{1, share{"u": {0, 1, 2}}}},
				{"c", []string{"u"}, owned{}},
			},
			map[string][]int32{"t": four, "u": {0, 1, 2}},
			map[string]share{"a": {"t": {0, 1}}, "b": {"t": {2, 3}, "u": {0}}, "c": {"u": {1, 2}}},
		},
		{
			"each topic is spread when dealt",
			[]claimant{
				{"a", []string{"t", "u"}, owned{1, share{"u": {0}}}},
				{"b", []string{"t", "u"}, owned{1, share{"t": {0}}}},
			},
			map[string][]int32{"t": {0}, "u": {0, 1}},
			map[string]share{"a": {"u": {0}}, "b": {"t": {0}, "u": {1}}},
		},
		{
			"each topic is spread when moved",
			[]claimant{
				{"a", []string{"t", "u"}, owned{1, share{"t": {0, 1}, "u": four}}},
				{"b", []string{"t", "u"}, owned{}},
			},
			map[string][]int32{"t": {0, 1}, "u": four},
			map[string]share{"a": {"t": {0}, "u": {0, 1}}, "b": {"t": {1}, "u": {2, 3}}},
		},
		{"nobody", nil, map[string][]int32{"t": four}, map[string]share{}},
		{"nothing", []claimant{{id: "a", topics: []string{"t"}}}, nil, map[string]share{"a": {}}},
	} {
		if diff := cmp.Diff(tt.want, balance(tt.members, tt.topics)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestAssignGroups: the balancer uses the partitions that kafka-go passes to it, and looks up the partitions of topics
// that kafka-go left out. A member whose user data come from another program counts as a member that owned nothing.
func TestAssignGroups(t *testing.T) {
	b := &sticky{lookup: func(topics []string) map[string][]int32 {
		if diff := cmp.Diff([]string{"u", "gone"}, topics); diff != "" {
			t.Errorf("looked up (-want +got):\n%s", diff)
		}
		return map[string][]int32{"u": {0, 1}}
	}}
	got := b.AssignGroups([]kafka.GroupMember{
		{ID: "a", Topics: []string{"t", "u", "gone"}, UserData: []byte("\x00\x00\x00\x01 something else")},
		{ID: "b", Topics: []string{"t", "u"}, UserData: owned{2, share{"u": {1}, "t": {0}}}.encode()},
	}, []kafka.Partition{{Topic: "t", ID: 0}, {Topic: "t", ID: 1}})
	want := kafka.GroupMemberAssignments{"a": {"t": {1}, "u": {0}}, "b": {"t": {0}, "u": {1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("assigned (-want +got):\n%s", diff)
	}
	if got := b.AssignGroups([]kafka.GroupMember{{ID: "a"}}, nil); got["a"] == nil {
		t.Error("a member without topics is left out")
	}
}

func TestOwnedRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := owned{
			generation: rapid.Int32().Draw(t, "generation"),
			partitions: rapid.MapOf(rapid.String(), rapid.SliceOfN(rapid.Int32(), 1, 5)).Draw(t, "partitions"),
		}
		if diff := cmp.Diff(want, decodeOwned(want.encode()), cmp.AllowUnexported(owned{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		encoded := want.encode()
		for name, b := range map[string][]byte{
			"short":   encoded[:rapid.IntRange(0, len(encoded)-1).Draw(t, "length")],
			"long":    append(slices.Clone(encoded), 0),
			"another": append([]byte{2}, encoded[1:]...),
		} {
			if got := decodeOwned(b); got.generation != 0 || len(got.partitions) > 0 {
				t.Fatalf("%s: %v", name, got)
			}
		}
	})
}

// FuzzDecodeOwned: user data of any program are either decoded or count as empty. Data that were decoded are the same
// after encoding and decoding.
func FuzzDecodeOwned(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{2, 0, 0, 0, 1, 1, 0})
	f.Add([]byte{1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add(owned{}.encode())
	f.Add(append(owned{7, share{"orders": {0, 5}, "t": nil}}.encode()[:24], 1, 3, 2, 'h', 'i'))
	f.Fuzz(func(t *testing.T, b []byte) {
		o := decodeOwned(b)
		if diff := cmp.Diff(o, decodeOwned(o.encode()), cmp.AllowUnexported(owned{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}
