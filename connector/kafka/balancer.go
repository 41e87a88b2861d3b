package kafka

import (
	"cmp"
	"maps"
	"slices"

	"github.com/segmentio/kafka-go"
)

// stickyName is the assignor that all members of a group must agree on. A change of the user data or of the algorithm
// needs a new name, so that old and new members do not mix.
const stickyName = "sluice-sticky"

// owned is what a member owned in its last generation, with the number of that generation.
type owned struct {
	generation int32
	partitions share
}

// sticky is the group's balancer. At each generation every member gives up its partitions and gets a complete new
// share, but a partition returns to the member that owned it last, as far as an even balance allows. The leader of a
// generation computes all shares from what each member reports as owned.
type sticky struct {
	// join is called before each join, on kafka-go's goroutine. It returns what this member owned last.
	join func() (owned, error)
	// lookup returns the partitions of topics. It does not use kafka-go, which loses all topics if one of them is
	// missing.
	lookup func(topics []string) map[string][]int32
}

// ProtocolName implements [kafka.GroupBalancer].
func (b *sticky) ProtocolName() string { return stickyName }

// UserData implements [kafka.GroupBalancer].
func (b *sticky) UserData() ([]byte, error) {
	o, err := b.join()
	return o.encode(), err
}

// AssignGroups implements [kafka.GroupBalancer]. Every member is in the result, if need be without partitions,
// because kafka-go fails on a missing assignment.
func (b *sticky) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	topics := make(map[string][]int32)
	for _, p := range partitions {
		topics[p.Topic] = append(topics[p.Topic], int32(p.ID)) //nolint:gosec // kafka-go widens Kafka's int32
	}
	var absent []string
	for _, m := range members {
		for _, t := range m.Topics {
			if _, ok := topics[t]; !ok && !slices.Contains(absent, t) {
				absent = append(absent, t)
			}
		}
	}
	if len(absent) > 0 {
		maps.Copy(topics, b.lookup(absent))
	}
	claimants := make([]claimant, len(members))
	for i, m := range members {
		claimants[i] = claimant{id: m.ID, topics: m.Topics, last: decodeOwned(m.UserData)}
	}
	assignments := make(kafka.GroupMemberAssignments, len(members))
	for id, given := range balance(claimants, topics) {
		byTopic := make(map[string][]int, len(given))
		for topic, ps := range given {
			for _, p := range ps {
				byTopic[topic] = append(byTopic[topic], int(p))
			}
		}
		assignments[id] = byTopic
	}
	return assignments
}

// claimant is a member of the group, with what balance needs to know of it.
type claimant struct {
	id     string
	topics []string
	last   owned
}

// balance assigns each partition that has subscribers to exactly one of them. The shares are even: no member has two
// partitions more than another one to which it could pass one, directly or through a chain of members. Within that,
// partitions stay with the member that owned them last; with equal subscriptions, as many as possible stay. If two
// members report the same partition, the one with the newer generation counts, and the result does not depend on the
// order of the arguments.
func balance(members []claimant, topics map[string][]int32) map[string]share {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b claimant) int { return cmp.Compare(a.id, b.id) })

	s := newShares(members, slices.Sorted(maps.Keys(topics)))
	for t, topic := range s.topics {
		ids := slices.Compact(slices.Sorted(slices.Values(topics[topic])))
		holders := s.holders(members, t, ids)
		for i, id := range ids {
			if holders[i] >= 0 {
				s.members[holders[i]].kept[t] = append(s.members[holders[i]].kept[t], id)
				s.members[holders[i]].load++
			} else if len(s.subscribers[t]) > 0 {
				s.free = append(s.free, topicPartition{t, id})
			}
		}
	}
	s.deal()
	for s.level() {
	}
	return s.result(members)
}

// topicPartition is a partition; topic is an index into the sorted topics.
type topicPartition struct {
	topic int
	id    int32
}

// memberShare is the share of one member while balance computes it, by topic. Partitions that the member kept are
// separate from those that it got now: passing a partition on that it got costs nothing, because it does not work on it
// yet.
type memberShare struct {
	load       int
	kept       [][]int32
	got        [][]int32
	subscribed []bool
	last       share // the share of the last generation; other members may own parts of it now
}

// share maps topics to partitions, ascending.
type share = map[string][]int32

func (h *memberShare) count(topic int) int { return len(h.kept[topic]) + len(h.got[topic]) }

// shares is what one call of balance works on. Members and topics are indices in sorted order.
type shares struct {
	topics      []string
	subscribers [][]int // the members that subscribe to each topic
	members     []memberShare
	free        []topicPartition
}

func newShares(members []claimant, topics []string) *shares {
	s := &shares{topics: topics, subscribers: make([][]int, len(topics)), members: make([]memberShare, len(members))}
	for m, c := range members {
		s.members[m] = memberShare{
			kept: make([][]int32, len(topics)), got: make([][]int32, len(topics)),
			subscribed: make([]bool, len(topics)), last: c.last.partitions,
		}
		for _, name := range c.topics {
			if t, ok := slices.BinarySearch(topics, name); ok && !s.members[m].subscribed[t] {
				s.members[m].subscribed[t] = true
				s.subscribers[t] = append(s.subscribers[t], m)
			}
		}
	}
	return s
}

// holders returns, for each partition of a topic, the index of the subscriber that owned it last, or -1. If several
// report the partition, that with the newest generation counts.
func (s *shares) holders(members []claimant, topic int, ids []int32) []int {
	holders := make([]int, len(ids))
	for i := range holders {
		holders[i] = -1
	}
	for _, m := range s.subscribers[topic] {
		for _, id := range members[m].last.partitions[s.topics[topic]] {
			i, ok := slices.BinarySearch(ids, id)
			if !ok {
				continue
			}
			if h := holders[i]; h < 0 || members[h].last.generation < members[m].last.generation {
				holders[i] = m
			}
		}
	}
	return holders
}

// deal assigns the free partitions to the members with the smallest loads among their subscribers. It begins with the
// topics that have the fewest subscribers.
func (s *shares) deal() {
	slices.SortStableFunc(s.free, func(a, b topicPartition) int {
		return cmp.Compare(len(s.subscribers[a.topic]), len(s.subscribers[b.topic]))
	})
	for _, p := range s.free {
		to := slices.MinFunc(s.subscribers[p.topic], func(a, b int) int {
			return cmp.Or(
				cmp.Compare(s.members[a].load, s.members[b].load),
				cmp.Compare(s.members[a].count(p.topic), s.members[b].count(p.topic)), // so each topic is spread as well
				cmp.Compare(a, b),
			)
		})
		s.members[to].got[p.topic] = append(s.members[to].got[p.topic], p.id)
		s.members[to].load++
	}
}

// level makes the loads more even by one step: along the shortest chain between two members whose loads differ by at
// least two, each member passes a partition to the next one. It returns false if there is no such chain, which means
// that the loads are as even as the subscriptions allow.
func (s *shares) level() bool {
	byLoad := make([]int, len(s.members))
	for m := range byLoad {
		byLoad[m] = m
	}
	slices.SortStableFunc(byLoad, func(a, b int) int { return cmp.Compare(s.members[b].load, s.members[a].load) })
	for _, from := range byLoad {
		if s.members[from].load-s.members[byLoad[len(byLoad)-1]].load < 2 {
			return false
		}
		to, came := s.reach(from)
		if s.members[from].load-s.members[to].load < 2 {
			continue
		}
		for to != from {
			s.move(came[to], to)
			to = came[to]
		}
		return true
	}
	return false
}

// reach returns the member with the smallest load to which from can pass a partition, directly or through a chain of
// members. Of several such members it returns the one with the shortest chain. came has, for each member, the one
// before it in the chain.
func (s *shares) reach(from int) (least int, came []int) {
	came = make([]int, len(s.members))
	for m := range came {
		came[m] = -1
	}
	came[from] = from
	least = from
	seen := make([]bool, len(s.topics)) // the first member with a partition of a topic reaches all subscribers of the topic
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for t := range s.topics {
			if seen[t] || s.members[queue[0]].count(t) == 0 {
				continue
			}
			seen[t] = true
			for _, m := range s.subscribers[t] {
				if came[m] >= 0 {
					continue
				}
				came[m] = queue[0]
				queue = append(queue, m)
				if s.members[m].load < s.members[least].load {
					least = m
				}
			}
		}
	}
	return least, came
}

// move moves one partition of the member from to the member to, which subscribes to the topic. It prefers a partition
// that from got in this balance to one that it kept, then a topic of which from has many more partitions than to, and
// then a partition that to owned last.
func (s *shares) move(from, to int) {
	a, b := &s.members[from], &s.members[to]
	best, bestFree, bestMore := -1, false, 0
	for t := range s.topics {
		if !b.subscribed[t] || a.count(t) == 0 {
			continue
		}
		free, more := len(a.got[t]) > 0, a.count(t)-b.count(t)
		if best < 0 || free && !bestFree || free == bestFree && more > bestMore {
			best, bestFree, bestMore = t, free, more
		}
	}
	pile := &a.kept[best]
	if bestFree {
		pile = &a.got[best]
	}
	at := len(*pile) - 1
	for i, id := range *pile { // prefers a partition that the member owned last, because it may still be working on it
		if slices.Contains(b.last[s.topics[best]], id) {
			at = i
			break
		}
	}
	b.got[best] = append(b.got[best], (*pile)[at])
	*pile = slices.Delete(*pile, at, at+1)
	a.load--
	b.load++
}

func (s *shares) result(members []claimant) map[string]share {
	result := make(map[string]share, len(members))
	for m, h := range s.members {
		mine := make(share)
		for t, topic := range s.topics {
			if ids := slices.Sorted(slices.Values(slices.Concat(h.kept[t], h.got[t]))); len(ids) > 0 {
				mine[topic] = ids
			}
		}
		result[members[m].id] = mine
	}
	return result
}

// ownedVersion starts the user data, in the encodings of KIP-482:
//
//	version int8
//	generation int32
//	topics array of (name string, partitions array of int32)
//	tagged fields
//
// A later version that adds data uses a tag, which this version skips. User data with another version number count as
// owning nothing.
const ownedVersion = 1

func (o owned) encode() []byte {
	e := encoder{flexible: true}
	e.i8(ownedVersion)
	e.i32(o.generation)
	e.array(len(o.partitions))
	for _, topic := range slices.Sorted(maps.Keys(o.partitions)) {
		e.str(topic)
		e.array(len(o.partitions[topic]))
		for _, id := range o.partitions[topic] {
			e.i32(id)
		}
	}
	e.tags()
	return e.b
}

// decodeOwned decodes user data. Data that are damaged or come from another program count as owning nothing; the only
// effect is that partitions move.
func decodeOwned(b []byte) owned {
	d := decoder{b: b, flexible: true}
	if d.i8() != ownedVersion {
		return owned{}
	}
	o := owned{generation: d.i32(), partitions: make(map[string][]int32)}
	for n := d.array(); n > 0 && d.err == nil; n-- {
		topic := d.str()
		for n := d.array(); n > 0 && d.err == nil; n-- {
			o.partitions[topic] = append(o.partitions[topic], d.i32())
		}
	}
	if d.tags(); d.err != nil || len(d.b) > 0 {
		return owned{}
	}
	return o
}
