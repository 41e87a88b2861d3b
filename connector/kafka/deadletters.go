package kafka

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// LetterTopic is a dead-letter topic and how letters are written to it.
type LetterTopic struct {
	Name   string
	Create bool // if it does not exist
	// Retention is how long the topic should keep letters, negative for ever. It is created with that, and one that keeps
	// them for less is warned of.
	Retention time.Duration
	Envelope  deadletter.Envelope
}

// LetterObjects takes records that are too large for a topic. Put returns nil once the object is durable; it retries by
// itself until ctx ends. The same key always comes with the same bytes.
type LetterObjects interface {
	Put(ctx context.Context, key string, object []byte) error
}

// DeadLettersConfig says how the letters of one table are written.
type DeadLettersConfig struct {
	Pipeline string
	// Topic returns where the letters of a source topic go.
	Topic   func(source string) (LetterTopic, error)
	Objects LetterObjects
	// Guard stands before the dead-letter topics. It alone retries.
	Guard *reliability.Guard
}

// DeadLetters writes letters: it implements [connector.DeadLetters]. Nothing is sent in the background. What Write did not
// return nil for may or may not be in the topic and is written again by whoever calls next; repeats have the same
// coordinates.
//
// Letters of one source partition keep their order: they go to one partition of the dead-letter topic, one batch at a
// time.
type DeadLetters struct {
	client *Client
	cfg    DeadLettersConfig
	logger *slog.Logger
	linked prometheus.Counter
	topics map[LetterTopic]*letterTopic
	failed *letterTopic // the last time
}

var _ connector.DeadLetters = (*DeadLetters)(nil)

// NewDeadLetters returns a writer of letters, which connects when it is used. reg may be nil.
func NewDeadLetters(client *Client, cfg DeadLettersConfig, logger *slog.Logger, reg prometheus.Registerer) *DeadLetters {
	d := &DeadLetters{
		client: client, cfg: cfg, logger: logger, topics: map[LetterTopic]*letterTopic{},
		linked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_dead_letters_linked_total",
			Help: "Dead letters too large for their topic, whose record was put into the bucket.",
		}),
	}
	if reg != nil {
		reg.MustRegister(d.linked)
	}
	return d
}

// What is sent at once, in bytes: one batch, unless a single letter is larger, and the batches of a round.
const (
	letterBatchBytes = 1 << 20
	letterRoundBytes = 4 << 20
)

// Write writes letters; see [connector.DeadLetters].
func (d *DeadLetters) Write(ctx context.Context, letters []deadletter.Letter) error {
	var topics []*letterTopic
	waiting := map[*letterTopic][]*backlog{}
	for i := range letters {
		l := &letters[i]
		t, err := d.topic(l.Source.Topic)
		if err != nil {
			return unavailable("%v", err)
		}
		if waiting[t] == nil {
			topics = append(topics, t)
		}
		waiting[t] = enqueue(waiting[t], l)
	}
	// Whoever calls tries again each minute, with all of the letters: first where it failed, so that the other topics do not
	// get theirs again each time.
	slices.SortStableFunc(topics, func(a, b *letterTopic) int {
		switch {
		case a == b:
			return 0
		case a == d.failed:
			return -1
		case b == d.failed:
			return 1
		}
		return 0
	})
	for _, t := range topics {
		err := d.write(ctx, t, waiting[t])
		if err == nil {
			if t == d.failed {
				d.failed = nil
			}
			continue
		}
		d.failed = t
		t.forget() // whoever mends it may change anything
		if ctx.Err() != nil {
			return classify.Mark(context.Cause(ctx), classify.Canceled)
		}
		return t.asHold(err)
	}
	return nil
}

// topic returns the dead-letter topic of a source topic.
func (d *DeadLetters) topic(source string) (*letterTopic, error) {
	to, err := d.cfg.Topic(source)
	if err != nil {
		return nil, err
	}
	t := d.topics[to]
	if t == nil {
		t = &letterTopic{LetterTopic: to, source: source, form: deadletter.Form{Pipeline: d.cfg.Pipeline, Envelope: to.Envelope}}
		t.forget()
		d.topics[to] = t
	}
	return t, nil
}

// backlog holds the letters of one source partition that are not acknowledged, in their order.
type backlog struct {
	source  connector.Partition
	letters []unwritten
}

type unwritten struct {
	letter *deadletter.Letter
	stamp  bool // the topic refuses the record's own timestamp
}

func enqueue(all []*backlog, l *deadletter.Letter) []*backlog {
	for _, b := range all {
		if b.source == l.Source.Partition {
			b.letters = append(b.letters, unwritten{letter: l})
			return all
		}
	}
	return append(all, &backlog{l.Source.Partition, []unwritten{{letter: l}}})
}

// letterBatch is one record batch on its way: the first letters of some backlogs.
type letterBatch struct {
	produceBatch
	parts   []letterPart
	bytes   int         // of the records, at most
	limit   int         // that the letters were made for
	refused kafka.Error // what only another batch can answer; 0 if nothing
}

type letterPart struct {
	*backlog
	n int
}

// settle takes acknowledged letters out of their backlogs.
func (b *letterBatch) settle() {
	for _, p := range b.parts {
		p.letters = p.letters[p.n:]
	}
}

// stamp makes the letters carry the time of writing.
func (b *letterBatch) stamp() (changed bool) {
	for _, p := range b.parts {
		for i := range p.letters[:p.n] {
			changed = changed || !p.letters[i].stamp
			p.letters[i].stamp = true
		}
	}
	return changed
}

// errRefused says that batches must be made anew; they say why. It is an answer, not a failure of the dependency.
var errRefused = classify.Mark(errors.New("refused"), classify.Fatal)

// write writes letters to one topic, round after round.
func (d *DeadLetters) write(ctx context.Context, t *letterTopic, waiting []*backlog) error {
	if time.Since(t.polled) > pollEvery {
		t.forget()
	}
	about := batchOf(waiting)
	for {
		// The topic first: how large a letter may be decides what it looks like.
		if err := d.cfg.Guard.Do(ctx, func(ctx context.Context) error { return d.findTopic(ctx, t) }, about...); err != nil {
			return err
		}
		batches, err := d.fill(ctx, t, waiting)
		if err != nil || len(batches) == 0 {
			return err
		}
		filled := time.Now()
		err = d.cfg.Guard.Do(ctx, func(ctx context.Context) (err error) {
			if now := time.Now(); now.Sub(filled) > rewriteAfter {
				if err := t.rewrite(batches, now); err != nil {
					return err
				}
				filled = now
			}
			batches, err = d.send(ctx, t, batches)
			return err
		}, about...)
		if errors.Is(err, errRefused) {
			err = d.adapt(t, batches)
		}
		if err != nil {
			return err
		}
	}
}

// batchOf names the batch whose letters wait, for the lines of the log.
func batchOf(waiting []*backlog) []any {
	for _, w := range waiting {
		for _, l := range w.letters {
			return []any{"batch_id", l.letter.Batch}
		}
	}
	return nil
}

// rewriteAfter is how old the records of a batch may be when it is sent: they say when they are written.
const rewriteAfter = time.Second

// rewrite makes the records of batches again, which waited for the topic.
func (t *letterTopic) rewrite(batches []*letterBatch, now time.Time) error {
	for _, b := range batches {
		var records []deadletter.Record
		for _, p := range b.parts {
			for _, l := range p.letters[:p.n] {
				r, _, err := t.record(l, b.limit, now)
				if err != nil {
					return err
				}
				records = append(records, r)
			}
		}
		b.records = appendBatch(b.records[:0], records)
	}
	return nil
}

// record returns the record of a letter that is written now, and the object that it links, if any.
func (t *letterTopic) record(l unwritten, limit int, now time.Time) (deadletter.Record, *deadletter.Object, error) {
	letter := *l.letter
	letter.Written = now
	r, object, err := t.form.Fit(letter, limit)
	if l.stamp || t.wouldExpire(r.Timestamp) {
		r.Timestamp = now.UnixMilli()
	}
	return r, object, err
}

// fill makes the batches of a round: one for each partition of the topic, none larger than the topic takes. What belongs
// into the bucket is there when it returns.
func (d *DeadLetters) fill(ctx context.Context, t *letterTopic, waiting []*backlog) ([]*letterBatch, error) {
	var (
		round   []*letterBatch
		records = map[*letterBatch][]deadletter.Record{}
		room    = letterRoundBytes
	)
	for _, w := range waiting {
		if len(w.letters) == 0 || room <= 0 {
			continue
		}
		b := batchFor(&round, w.source.ID%int32(len(t.leaders))) //nolint:gosec // partitions of a topic
		n := 0
		for i := range w.letters {
			r, object, err := t.record(w.letters[i], t.limit, time.Now())
			if err != nil {
				return nil, err
			}
			size := r.Size()
			if len(records[b]) > 0 && deadletter.BatchOverhead+b.bytes+size > min(t.limit, letterBatchBytes) || room <= 0 {
				break
			}
			if object != nil {
				if err := d.cfg.Objects.Put(ctx, object.Key, object.Bytes); err != nil {
					return nil, &objectError{err}
				}
				d.linked.Inc()
			}
			records[b] = append(records[b], r)
			b.bytes, room, n = b.bytes+size, room-size, n+1
		}
		b.parts = append(b.parts, letterPart{w, n})
	}
	for _, b := range round {
		b.limit = t.limit
		b.records = appendBatch(make([]byte, 0, deadletter.BatchOverhead+b.bytes), records[b])
	}
	return round, nil
}

// batchFor returns the batch of a round for a partition.
func batchFor(round *[]*letterBatch, partition int32) *letterBatch {
	for _, b := range *round {
		if b.partition == partition {
			return b
		}
	}
	b := &letterBatch{produceBatch: produceBatch{partition: partition}}
	*round = append(*round, b)
	return b
}

// send sends each batch once and returns those that are not acknowledged, with the error that says most: a refusal
// that needs a person, one that needs another batch, or what passes.
func (d *DeadLetters) send(ctx context.Context, t *letterTopic, batches []*letterBatch) (left []*letterBatch, err error) {
	if err := d.findTopic(ctx, t); err != nil {
		return batches, err
	}
	worst := func(e error) {
		switch {
		case err == nil, rank(e) > rank(err):
			err = e
		}
		t.stale = true // leaders move, topics go
	}
	leaders := map[int32][]*letterBatch{}
	var order []int32
	for _, b := range batches {
		switch leader := t.leader(b.partition); {
		case int(b.partition) >= len(t.leaders): // the topic was created again, with fewer partitions
			b.refused = kafka.UnknownTopicOrPartition
			left = append(left, b)
			worst(errRefused)
		case leader < 0:
			left = append(left, b)
			worst(Classify(kafka.LeaderNotAvailable))
		default:
			if leaders[leader] == nil {
				order = append(order, leader)
			}
			leaders[leader] = append(leaders[leader], b)
		}
	}
	for _, leader := range order {
		var request []produceBatch
		for _, b := range leaders[leader] {
			request = append(request, b.produceBatch)
		}
		answers, e := d.client.produce(ctx, leader, t.Name, request)
		if e != nil {
			left = append(left, leaders[leader]...)
			worst(Classify(e))
			continue
		}
		for i, b := range leaders[leader] {
			if answers[i].err == 0 {
				b.settle()
				continue
			}
			left = append(left, b)
			worst(b.done(answers[i]))
		}
	}
	return left, err
}

// rank orders errors by how much they decide.
func rank(err error) int {
	switch {
	case errors.Is(err, errRefused):
		return 1
	case classify.Of(err) != classify.Transient:
		return 2
	}
	return 0
}

// done judges the answer for a batch that is not acknowledged.
func (b *letterBatch) done(a produced) error {
	switch a.err { //nolint:exhaustive // the others are judged by their class
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidTimestamp:
		b.refused = a.err
		return errRefused
	case kafka.InvalidRecord, kafka.TransactionCoordinatorFenced, kafka.InvalidProducerEpoch, kafka.ProducerFenced:
		return classify.Mark(&produceError{a}, classify.Fatal)
	}
	return Classify(&produceError{a})
}

// produceError is the answer of a broker in its own words, which speak of sizes, times and settings.
type produceError struct{ produced }

func (e *produceError) Error() string {
	if e.detail == "" {
		return e.err.Error()
	}
	return e.err.Error() + ": " + e.detail
}

func (e *produceError) Unwrap() error { return e.err }

// objectError says that the bucket did not take a record.
type objectError struct{ error }

func (e *objectError) Unwrap() error { return e.error }

// adapt changes what is believed of a topic so that the next batches are others.
func (d *DeadLetters) adapt(t *letterTopic, refused []*letterBatch) error {
	for _, b := range refused {
		switch b.refused { //nolint:exhaustive // what answered tells
		case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge:
			t.limit = min(t.limit, len(b.records)) / 2
			d.logger.Warn("dead-letter topic takes smaller batches than its settings say", "topic", t.Name, "bytes", len(b.records), "next", t.limit)
		case kafka.InvalidTimestamp:
			if !b.stamp() {
				return classify.Mark(kafka.InvalidTimestamp, classify.Fatal)
			}
		}
	}
	return nil
}
