package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"sluice/classify"
	"sluice/reliability"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// letterTopic is a dead-letter topic with its leaders and settings as last read. It belongs to one [DeadLetters].
type letterTopic struct {
	LetterTopic
	source string // one of the source topics of its dead letters
	form   deadletter.Form

	stale     bool          // true if findTopic must read the leaders again
	leaders   []int32       // the leader of each partition; -1 if it has none
	limit     int           // the largest size of a batch, in bytes; 0 if unknown
	retention time.Duration // negative if unlimited or unknown
	polled    time.Time     // when the settings were last read
	logged    TopicSettings // the settings about which a warning was last logged, so that it is not repeated
	refused   bool          // true if reading the settings was denied, which was logged
}

const (
	// pollEvery is the interval at which the settings of a dead-letter topic are read again.
	pollEvery = 5 * time.Minute
	// defaultLimit is Kafka's default of max.message.bytes.
	defaultLimit = 1_048_588
	// maxLetterPartitions bounds the partitions of a new dead-letter topic. A few are enough: the order of dead letters
	// does not depend on their number, dead letters are rare, and each partition costs the cluster.
	maxLetterPartitions = 16
	// letterOverhead is an upper bound for the bytes by which a dead letter is larger than its record.
	letterOverhead = 64 << 10
	// createdPolls bounds how often the metadata of a new topic are requested until its leaders are known.
	createdPolls = 8
)

// forget makes the next findTopic read leaders and settings again.
func (t *letterTopic) forget() { t.stale, t.limit, t.leaders = true, 0, nil }

// leader returns the leader of a partition, -1 if there is none.
func (t *letterTopic) leader(partition int32) int32 {
	if int(partition) >= len(t.leaders) {
		return -1
	}
	return t.leaders[partition]
}

// wouldExpire reports whether Kafka would delete a dead letter with this timestamp within the first half of the topic's
// retention. Kafka counts from the timestamp of a record, and not from the time when it was written.
func (t *letterTopic) wouldExpire(ms int64) bool {
	return t.retention >= 0 && ms < time.Now().Add(-t.retention/2).UnixMilli()
}

// findTopic reads the topic's leaders if they are stale, and its settings if they are not known. It creates a missing
// topic if the configuration allows it.
func (d *DeadLetters) findTopic(ctx context.Context, t *letterTopic) error {
	if t.stale {
		if err := d.findLeaders(ctx, t); err != nil {
			return err
		}
		t.stale = false
	}
	if t.limit > 0 {
		return nil
	}
	return d.checkSettings(ctx, t)
}

// findLeaders reads the leaders of the topic's partitions, and creates the topic if it is missing and Create is set.
func (d *DeadLetters) findLeaders(ctx context.Context, t *letterTopic) error {
	for polls := 0; ; polls++ {
		m, err := d.client.metadata(ctx, t.Name)
		if err != nil {
			return err
		}
		topic := m.topic(t.Name)
		switch {
		case topic == nil:
			return fmt.Errorf("metadata: %w: the response lacks topic %s", errMalformed, t.Name)
		case topic.missing() && !t.Create:
			return t.missing()
		case topic.missing() && polls == 0:
			t.limit = 0
			if err := d.create(ctx, t); err != nil {
				return err
			}
		case topic.missing(), topic.Err == kafka.LeaderNotAvailable, topic.Err == 0 && len(topic.Partitions) == 0:
			if polls == 0 || polls >= createdPolls {
				return Classify(kafka.LeaderNotAvailable)
			}
		case topic.Err != 0:
			return fmt.Errorf("metadata: %w", Classify(topic.Err))
		default:
			leaders, led := make([]int32, len(topic.Partitions)), true
			for i, p := range topic.Partitions {
				leaders[i] = p.Leader
				led = led && p.Leader >= 0
			}
			t.leaders = leaders
			if led || polls == 0 || polls >= createdPolls {
				return nil
			}
		}
		if err := reliability.Wait(ctx, retryPause(polls+1)); err != nil {
			return err
		}
	}
}

// create creates the topic. If another member has created it meanwhile, this is a success.
func (d *DeadLetters) create(ctx context.Context, t *letterTopic) error {
	topic, err := d.client.newLetterTopic(ctx, t.LetterTopic, t.source)
	if err == nil {
		err = d.client.createTopic(ctx, topic, false)
	}
	switch {
	case err == nil:
		d.logger.InfoContext(ctx, "dead-letter topic created", "topic", t.Name, "partitions", topic.partitions, "retention", retentionText(t.Retention))
		return nil
	case errors.Is(err, kafka.TopicAlreadyExists):
		return nil
	}
	return &createError{Classify(err)}
}

// retentionText returns a retention as text; a negative one means no limit.
func retentionText(d time.Duration) string {
	if d < 0 {
		return "without a limit"
	}
	return d.String()
}

// createError means that a topic could not be created.
type createError struct{ error }

func (e *createError) Unwrap() error { return e.error }

// checkSettings reads the limit of the batch size and the retention of a topic. If this member may not read them, it
// assumes Kafka's defaults.
func (d *DeadLetters) checkSettings(ctx context.Context, t *letterTopic) error {
	s, err := d.client.TopicSettings(ctx, t.Name)
	switch {
	case err != nil && classify.Of(err) == classify.Transient:
		return err
	case err != nil:
		if !t.refused {
			d.logger.WarnContext(ctx, "failed to read the settings of the dead-letter topic; grant DescribeConfigs on it", "topic", t.Name, "err", err)
		}
		t.refused, t.limit, t.retention, t.polled = true, defaultLimit, t.Retention, time.Now()
		return nil
	case s.Compact:
		return t.compacted()
	}
	if t.limit = int(s.MaxBatch); t.limit <= 0 {
		t.limit = defaultLimit
	}
	t.retention, t.refused, t.polled = -1, false, time.Now()
	if s.Delete {
		t.retention = s.RetentionTime
	}
	if t.retention >= 0 && (t.Retention < 0 || t.retention < t.Retention) && s != t.logged {
		d.logger.WarnContext(ctx, "dead-letter topic keeps dead letters shorter than dead_letters.retention; raise its retention.ms",
			"topic", t.Name, "retention", t.retention, "wanted", t.Retention)
	}
	t.logged = s
	return nil
}

// unavailable returns the hold for a dead-letter topic that an operator must fix.
func unavailable(format string, args ...any) error {
	return hold.New(hold.DeadLettersUnavailable, fmt.Sprintf(format, args...), nil)
}

func (t *letterTopic) missing() error {
	return unavailable("dead-letter topic %s does not exist: create it with cleanup.policy=delete, or set dead_letters.create: true", t.Name)
}

func (t *letterTopic) compacted() error {
	return unavailable("dead-letter topic %s has cleanup.policy=compact, which deletes letters that have newer ones of the same key: "+
		"set cleanup.policy=delete", t.Name)
}

// asHold returns the hold for an error of writing to the topic. Its detail says what the operator can do.
func (t *letterTopic) asHold(err error) error {
	if h, ok := errors.AsType[*hold.Error](err); ok && h.Reason == hold.DeadLettersUnavailable {
		return err
	}
	var (
		code, coded  = errors.AsType[kafka.Error](err)
		_, creating  = errors.AsType[*createError](err)
		_, storing   = errors.AsType[*objectError](err)
		detail       string
		tooSmall     = errors.Is(err, deadletter.ErrNoRoom)
		refusedToUs  = coded && denied(code)
		policyForbid = coded && code == kafka.PolicyViolation
	)
	switch {
	case storing:
		detail = fmt.Sprintf("record too large for dead-letter topic %s: failed to put it into the bucket: %v", t.Name, err)
	case tooSmall:
		detail = fmt.Sprintf("dead-letter topic %s: %v: raise its max.message.bytes", t.Name, err)
	case creating && refusedToUs:
		detail = fmt.Sprintf("creating dead-letter topic %s is refused (%v): create it with cleanup.policy=delete, or grant Create on it", t.Name, err)
	case creating && policyForbid:
		detail = fmt.Sprintf("a policy of the cluster forbids to create dead-letter topic %s (%v): create it by hand", t.Name, err)
	case creating:
		detail = fmt.Sprintf("dead-letter topic %s cannot be created (%v): create it with cleanup.policy=delete", t.Name, err)
	case refusedToUs:
		detail = fmt.Sprintf("writing to dead-letter topic %s is refused (%v): grant Write and Describe on it", t.Name, err)
	default:
		detail = fmt.Sprintf("writing to dead-letter topic %s fails and needs a person: %v", t.Name, err)
	}
	return holdError{unavailable("%s", detail), err}
}
