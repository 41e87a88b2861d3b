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
	// minCanaryDeadline is what a canary may take even if the next one is due: a rebalance, an election of a leader.
	minCanaryDeadline = 60 * time.Second
	// maxCanaryPoll and leastCanaryPoll bound how often the table is looked at for a canary that is under way.
	maxCanaryPoll = time.Second
	minCanaryPoll = 100 * time.Millisecond
	// canaryRetention is how long Kafka keeps canaries that we made the topic for.
	canaryRetention = 24 * time.Hour
)

// newCanary makes the member's canary: each record has an id, by which it is known in the table.
func (s *Member) newCanary() (*canary.Canary, error) {
	c, member := s.config.Health.Canary, s.connector.Member
	topic, _ := s.config.Canary(c.Topic)
	table := objstore.Sub(s.store, topic.Table)
	id := func(n int64) string { return member + "-" + strconv.FormatInt(n, 10) }
	made := false
	var look *delta.RowFinder
	looking := int64(-1)
	return canary.New(canary.Config{
		Topic: c.Topic, Every: c.Every, Deadline: max(c.Every, minCanaryDeadline),
		Poll: min(max(c.Every/20, minCanaryPoll), maxCanaryPoll),
		Produce: func(ctx context.Context, n int64, sent time.Time) (canary.Place, error) {
			if !made { // a topic that is gone later comes back with a restart, or by hand
				err := s.client.CreateTopic(ctx, c.Topic, 1, [2]string{"cleanup.policy", "delete"},
					[2]string{"retention.ms", strconv.FormatInt(canaryRetention.Milliseconds(), 10)})
				if made = err == nil; !made {
					s.logger.DebugContext(ctx, "the canary's topic cannot be created", "topic", c.Topic, "err", err)
				}
			}
			value, err := json.Marshal(struct {
				ID     string    `json:"id"`
				Member string    `json:"member"`
				SentAt time.Time `json:"sent_at"`
			}{id(n), member, sent.UTC().Truncate(time.Microsecond)})
			if err != nil {
				return canary.Place{}, fmt.Errorf("write a canary: %w", err)
			}
			partition, offset, err := s.client.ProduceOne(ctx, c.Topic, deadletter.Record{Timestamp: sent.UnixMilli(), Key: []byte(member), Value: value})
			return canary.Place{Partition: partition, Offset: offset}, err
		},
		Visible: func(ctx context.Context, n int64, at canary.Place) (bool, error) {
			if n != looking { // anew for each: the table may have been replaced
				look, looking = delta.NewRowFinder(table), n
			}
			return look.Has(ctx, c.Topic, at.Partition, at.Offset, "id", id(n))
		},
		Logger: s.logger, Registerer: s.registry,
	})
}
