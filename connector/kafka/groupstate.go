package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describegroups"
)

// GroupState is what the coordinator says of a group.
type GroupState struct {
	// State is Empty, Stable, PreparingRebalance and the like; Dead if there is no such group, which is no error.
	State string
	// Foreign says which assignor the members agreed on if it is not the one of this program, "" otherwise and while they
	// have not agreed. No member of this program can join such a group.
	Foreign string
	Members []GroupMember
}

// GroupMember is a member of a group, of this program or of another one.
type GroupMember struct {
	Client, Host string
	Topics       []string // subscribed to, empty if the member does not tell in a known form
}

// State asks the coordinator for the state of the group, which needs the right to describe it.
func (g *Group) State(ctx context.Context) (GroupState, error) {
	ctx, cancel := context.WithTimeout(ctx, g.client.timeout())
	defer cancel()
	of, err := g.describe(ctx)
	if errors.Is(err, kafka.GroupIdNotFound) {
		return GroupState{State: "Dead"}, nil
	}
	if err != nil {
		return GroupState{}, AsHold("reading the state of group "+g.cfg.Group, fmt.Errorf("group %s: %w", g.cfg.Group, err))
	}
	s := GroupState{State: of.GroupState}
	if of.ProtocolData != stickyName {
		s.Foreign = of.ProtocolData
	}
	for _, m := range of.Members {
		s.Members = append(s.Members, GroupMember{m.ClientID, m.ClientHost, subscribed(m.MemberMetadata)})
	}
	return s, nil
}

// describe sends one DescribeGroups request. kafka-go's own method decodes the subscriptions of all members, and fails for
// a group with a member whose client is newer than it knows.
func (g *Group) describe(ctx context.Context) (*describegroups.ResponseGroup, error) {
	response, err := g.client.transport.RoundTrip(ctx, g.client.addr, &describegroups.Request{Groups: []string{g.cfg.Group}})
	if err != nil {
		return nil, err
	}
	all, ok := response.(*describegroups.Response)
	if !ok || len(all.Groups) != 1 {
		return nil, errMalformed
	}
	if code := kafka.Error(all.Groups[0].ErrorCode); code != 0 {
		return nil, code
	}
	return &all.Groups[0], nil
}

// subscribed returns the topics of a ConsumerProtocolSubscription. Each version begins with the fields of version 0: its
// number, the topics, user data. Later ones add to them (owned partitions, generation, rack), so whatever follows the
// topics is not read. Bytes of another kind yield no topic.
func subscribed(metadata []byte) (topics []string) {
	d := decoder{b: metadata}
	d.i16() // version
	for n := d.array(); n > 0 && d.err == nil; n-- {
		topics = append(topics, d.str())
	}
	if d.err != nil {
		return nil
	}
	return topics
}
