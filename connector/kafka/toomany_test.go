package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
)

// atMost sets the limit for the number of topics to n.
func atMost(n int) func(*Config, *GroupConfig) {
	return func(_ *Config, g *GroupConfig) {
		g.Matches = func(topic string) bool { return strings.HasPrefix(topic, "t.") }
		g.Beyond = func(names []string) map[string]string {
			found := map[string]string{}
			for _, name := range names[min(len(names), n):] {
				found[name] = fmt.Sprintf("%d topics", len(names))
			}
			return found
		}
	}
}

func (m *member) tooMany() []string { return namesOf(m.Absent(), hold.TooManyTopics) }

// commit commits an offset for each partition of the topics to the group.
func (m *member) commit(t *testing.T, topics ...string) {
	t.Helper()
	offsets := map[connector.Partition]connector.GroupOffset{}
	for _, p := range m.now().Partitions {
		if slices.Contains(topics, p.Topic) {
			offsets[p] = connector.GroupOffset{Next: 0, Epoch: -1}
		}
	}
	if err := m.CommitOffsets(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
}

// TestTooManyTopics: topics above the limit are held. A new topic is held even if its name comes before those of topics
// that are already read; a member that has just started decides the same.
func TestTooManyTopics(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		for _, name := range []string{"t.b", "t.c", "t.d", "other"} {
			s.create(name, 1)
		}
		m := s.start(atMost(2))
		s.until("the first two are read", m.has(2))
		m.told("joined t.b:0 t.c:0")
		held := func(m *member, want ...string) func() bool {
			return func() bool { return slices.Equal(m.tooMany(), want) }
		}
		s.until("the third is held", held(m, "t.d"))
		if a := m.Absent(); len(a) != 1 || a[0].Detail != "3 topics" {
			t.Errorf("%+v", a)
		}

		s.create("t.a", 1) // its name comes first, but the group has no committed offset of it
		s.until("a new topic is held", held(m, "t.a", "t.d"))
		m.commit(t, "t.b", "t.c")
		second := s.start(atMost(2)) // a member that knows of no earlier subscription
		s.until("a new member agrees", func() bool { return held(second, "t.a", "t.d")() && m.has(1)() && second.has(1)() })
		second.stop()
		m.stop()

		m = s.start(atMost(2))
		s.until("the same ones after a restart", m.has(2))
		m.told("joined t.b:0 t.c:0")
		names, beyond, err := m.Survey(t.Context())
		if err != nil || !slices.Equal(names, []string{"t.b", "t.c"}) || !slices.Equal(namesOf(beyond, hold.TooManyTopics), []string{"t.a", "t.d"}) {
			t.Errorf("%v %v %v", names, beyond, err)
		}
		s.delete("t.b")
		s.until("a free place is taken", func() bool { return held(m, "t.d")() && m.has(2)() && m.now().Partitions[0].Topic == "t.a" })
		if n := m.logs.count("topics beyond max_topics are not read"); n == 0 {
			t.Error("the log is silent")
		}
	})
}

// TestTooManyTopics_Many: if a thousand topics exceed the limit, only the first listedBeyond of them by name become
// holds.
func TestTooManyTopics_Many(t *testing.T) {
	seen := pollResult{beyond: map[string]string{}}
	for i := range 1000 {
		seen.beyond[fmt.Sprintf("t.%03d", i)] = "1002 topics"
	}
	held := seen.held()
	if len(held) != listedBeyond || held[0].Topic != "t.000" || held[0].Reason != hold.TooManyTopics || held[0].Since.After(time.Now()) {
		t.Errorf("%d %+v", len(held), held[0])
	}
}
