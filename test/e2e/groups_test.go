//go:build lab

package e2e

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"sluice/test/tablelog"
)

// described is a line of the output of kafka-consumer-groups.sh --describe.
type described struct {
	offset, end, lag int64
	member           string // "-" if the group has no members
}

// describe runs kafka-consumer-groups.sh on the scene's group and returns the lines of its output by partition. A
// number that the tool prints as "-" is -1.
func (s *scene) describe() (map[int32]described, error) {
	out, err := shared.kafka.Groups(s.ctx, "--describe", "--group", s.name)
	if err != nil {
		return nil, err
	}
	all := map[int32]described{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line) // GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID …
		if len(f) < 7 || f[0] != s.name || f[1] != s.name {
			continue
		}
		number := func(text string) int64 {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return -1
			}
			return n
		}
		all[int32(number(f[2]))] = described{number(f[3]), number(f[4]), number(f[5]), f[6]}
	}
	return all, nil
}

// TestConsumerGroupsTool expects kafka-consumer-groups.sh to show the table's positions as committed offsets, the lag,
// and the member of each partition.
func TestConsumerGroupsTool(t *testing.T) {
	t.Parallel()
	s := newScene(t, 3)
	s.produce(3_000)
	m := s.start()
	s.awaitRows(3_000)
	shows := func(what string, member func(string) bool) {
		t.Helper()
		s.await(what, func() (bool, error) {
			lines, err := s.describe()
			positions := tablelog.Positions(s.commits())
			offsets := map[int32]int64{}
			for id, d := range lines {
				offsets[id] = d.offset
				if d.lag != d.end-d.offset || d.lag != 0 || !member(d.member) {
					return false, err
				}
			}
			return len(lines) == 3 && maps.Equal(offsets, positions), err
		})
	}
	shows("the group has the table's positions, no lag and a member", func(name string) bool { return strings.HasPrefix(name, "sluice") })
	s.produce(500)
	s.awaitRows(3_500)
	m.drain()
	shows("the group keeps the table's positions without a member", func(name string) bool { return name == "-" })

	s.produce(300) // no member runs, so these records become the lag
	lag := int64(0)
	lines, err := s.describe()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range lines {
		lag += d.lag
	}
	if lag != 300 {
		t.Errorf("the tool shows a lag of %d records, 300 were produced", lag)
	}
	s.untilCurrent()
	shows("the group is current", func(name string) bool { return name == "-" })
	s.check()
}
