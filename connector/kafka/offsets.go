package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"

	"sluice/classify"
	"sluice/connector"
)

// Offsets returns the group's committed offsets for all current partitions of a topic. It is part of
// [connector.Group]. A missing topic is a [hold.Error] with hold.TopicMissing.
func (g *Group) Offsets(ctx context.Context, topic string) (map[int32]connector.GroupOffset, error) {
	t, err := g.client.Topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.client.timeout())
	defer cancel()
	request := &kafka.OffsetFetchRequest{GroupID: g.cfg.Group, Topics: map[string][]int{topic: nil}}
	for _, id := range t.Partitions {
		request.Topics[topic] = append(request.Topics[topic], int(id))
	}
	doing := "reading the offsets of group " + g.cfg.Group
	response, err := g.client.requests().OffsetFetch(ctx, request)
	if err == nil {
		err = response.Error
	}
	if err != nil {
		return nil, AsHold(doing, fmt.Errorf("offsets of group %s: %w", g.cfg.Group, err))
	}
	offsets := make(map[int32]connector.GroupOffset)
	answered := 0
	for _, p := range response.Topics[topic] {
		if p.Error != nil {
			return nil, AsHold(doing, fmt.Errorf("offset of group %s for %s:%d: %w", g.cfg.Group, topic, p.Partition, p.Error))
		}
		answered++
		if p.CommittedOffset >= 0 {
			id := int32(p.Partition) //nolint:gosec // kafka-go widens Kafka's int32
			offsets[id] = connector.GroupOffset{Next: p.CommittedOffset, Epoch: parseEpoch(p.Metadata)}
		}
	}
	if answered != len(t.Partitions) { // a partition that the response omits would look like one without an offset, and its topic might get a second initial commit
		return nil, fmt.Errorf("offsets of group %s: %w: %d of %d partitions of %s",
			g.cfg.Group, errMalformed, answered, len(t.Partitions), topic)
	}
	return offsets, nil
}

// CommitOffsets commits offsets of the group; see [connector.Group]. It skips partitions that are no claims of this
// member in the newest generation, because their new owner commits them. The error is Fenced if the coordinator says
// that the generation is over, or if this member has not joined any.
func (g *Group) CommitOffsets(ctx context.Context, offsets map[connector.Partition]connector.GroupOffset) error {
	last := g.newest()
	if last.member == "" {
		return classify.Mark(fmt.Errorf("commit offsets of group %s: no generation", g.cfg.Group), classify.Fenced)
	}
	topics := make(map[string][]offsetcommit.RequestPartition)
	for _, p := range last.claims {
		if o, ok := offsets[p]; ok {
			topics[p.Topic] = append(topics[p.Topic], offsetcommit.RequestPartition{
				PartitionIndex: p.ID, CommittedOffset: o.Next, CommittedLeaderEpoch: o.Epoch, CommittedMetadata: formatEpoch(o.Epoch),
			})
		}
	}
	if len(topics) == 0 {
		return nil
	}
	request := &offsetcommit.Request{
		GroupID: g.cfg.Group, GenerationID: last.id, MemberID: last.member,
		RetentionTimeMs: -1, // the retention that the broker is configured with; only versions before 5 have this field
	}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		request.Topics = append(request.Topics, offsetcommit.RequestTopic{Name: name, Partitions: topics[name]})
	}
	ctx, cancel := context.WithTimeout(ctx, g.client.timeout())
	defer cancel()
	doing := "writing the offsets of group " + g.cfg.Group
	// kafka-go's Client.OffsetCommit cannot be used: it sends leader epoch 0, and consumers would believe it.
	answer, err := g.client.transport.RoundTrip(ctx, g.client.addr, request)
	if err != nil {
		return AsHold(doing, fmt.Errorf("commit offsets of group %s: %w", g.cfg.Group, err))
	}
	response, ok := answer.(*offsetcommit.Response)
	if !ok {
		return fmt.Errorf("commit offsets of group %s: %w: %T", g.cfg.Group, errMalformed, answer)
	}
	var refused error
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if code := kafka.Error(p.ErrorCode); code != 0 && refused == nil {
				refused = fmt.Errorf("commit offset of group %s for %s:%d: %w", g.cfg.Group, t.Name, p.PartitionIndex, code)
			}
		}
	}
	return AsHold(doing, refused)
}

// remove asks the coordinator to remove a member from the group. It ignores error codes in the response, because a
// member that the coordinator does not know is removed already. An error means that there was no response.
func (g *Group) remove(ctx context.Context, member string) error {
	ctx, cancel := context.WithTimeout(ctx, g.client.timeout())
	defer cancel()
	_, err := g.client.requests().LeaveGroup(ctx, &kafka.LeaveGroupRequest{
		GroupID: g.cfg.Group, Members: []kafka.LeaveGroupRequestMember{{ID: member}},
	})
	return err
}

// epochPrefix begins the metadata of a committed offset, which contain the leader epoch of the record batch before the
// offset. Kafka's own field for the epoch is not used, because clients that do not know the epoch write arbitrary
// values there.
const epochPrefix = "epoch="

func formatEpoch(epoch int32) string {
	if epoch < 0 {
		return ""
	}
	return epochPrefix + strconv.Itoa(int(epoch))
}

// parseEpoch returns the epoch in metadata that formatEpoch has made, and -1 for other metadata.
func parseEpoch(metadata string) int32 {
	digits, ours := strings.CutPrefix(metadata, epochPrefix)
	epoch, err := strconv.ParseInt(digits, 10, 32)
	if !ours || err != nil || epoch < 0 {
		return -1
	}
	return int32(epoch)
}
