package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describegroups"
)

// GroupState is the state of a group as its coordinator reports it.
type GroupState struct {
	// State is Empty, Stable, PreparingRebalance and the like; Dead if the group does not exist, which is no error.
	State string
	// Foreign is the assignor that the members agreed on, if it is not this program's; else "". No member of this
	// program can join such a group.
	Foreign string
	Members []GroupMember
}

// GroupMember is a member of a group. It may belong to another program.
type GroupMember struct {
	Client, Host string
	Topics       []string // the topics to which it subscribes; empty if the format is unknown
}

// State requests the state of the group from the coordinator. It needs the right to describe the group.
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

// describe sends one DescribeGroups request. kafka-go's own method decodes the subscriptions of all members, and
// fails if one client is newer than it knows.
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

// subscribed returns the topics in a ConsumerProtocolSubscription. Every version begins with the fields of version 0:
// version, topics, user data. What later versions append (owned partitions, generation, rack) is skipped, and bytes in
// another format give no topics.
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
