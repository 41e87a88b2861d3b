package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"sluice/health/canary"
	"sluice/reliability/deadletter"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

const (
	// minCanaryDeadline is the shortest time after which a canary record counts as late, also if canary records are sent
	// more often. A rebalance or the election of a leader may delay a record for a while, which is not a fault.
	minCanaryDeadline = 60 * time.Second
	// maxCanaryPoll and minCanaryPoll bound the pause between two searches of the table for a sent canary record.
	maxCanaryPoll = time.Second
	minCanaryPoll = 100 * time.Millisecond
	// canaryRetention is retention.ms of a canary topic that this member creates.
	canaryRetention = 24 * time.Hour
)

// newCanary returns the canary that this member runs. If its topic does not exist, the canary creates it before the
// first record. It finds the row of each record by the record's coordinates and by the id in its value.
func (s *Member) newCanary() (*canary.Canary, error) {
	c, member := s.config.Health.Canary, s.pipeline.Member
	topic, _ := s.config.Canary(c.Topic)
	table := objstore.Sub(s.store, topic.Table)
	id := func(n int64) string { return member + "-" + strconv.FormatInt(n, 10) }
	made := false
	var finder *delta.RowFinder
	finding := int64(-1) // the number of the canary record for which finder was made
	return canary.New(canary.Config{
		Topic: c.Topic, Every: c.Every, Deadline: max(c.Every, minCanaryDeadline),
		Poll: min(max(c.Every/20, minCanaryPoll), maxCanaryPoll),
		Produce: func(ctx context.Context, n int64, sent time.Time) (canary.Place, error) {
			if !made { // created once: if the topic is deleted later, a restart or an operator must create it again
				err := s.client.CreateTopic(ctx, c.Topic, 1, [2]string{"cleanup.policy", "delete"},
					[2]string{"retention.ms", strconv.FormatInt(canaryRetention.Milliseconds(), 10)})
				if made = err == nil; !made {
					s.logger.DebugContext(ctx, "failed to create the topic of the canary", "topic", c.Topic, "err", err)
				}
			}
			value, err := json.Marshal(struct {
				ID     string    `json:"id"`
				Member string    `json:"member"`
				SentAt time.Time `json:"sent_at"`
			}{id(n), member, sent.UTC().Truncate(time.Microsecond)})
			if err != nil {
				return canary.Place{}, fmt.Errorf("encode a canary record: %w", err)
			}
			partition, offset, err := s.client.ProduceOne(ctx, c.Topic, deadletter.Record{Timestamp: sent.UnixMilli(), Key: []byte(member), Value: value})
			return canary.Place{Partition: partition, Offset: offset}, err
		},
		Visible: func(ctx context.Context, n int64, at canary.Place) (bool, error) {
			if n != finding { // each record gets a new finder, because the table may have been replaced
				finder, finding = delta.NewRowFinder(table), n
			}
			return finder.Has(ctx, c.Topic, at.Partition, at.Offset, "id", id(n))
		},
		Logger: s.logger, Registerer: s.registry,
	})
}
