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

// LetterTopic configures one dead-letter topic.
type LetterTopic struct {
	Name   string
	Create bool // create the topic if it does not exist
	// Retention is how long the topic should keep dead letters, negative for ever. A new topic is created with it. A
	// warning is logged if an existing topic keeps them for less.
	Retention time.Duration
	Envelope  deadletter.Envelope
}

// LetterObjects is the bucket for records that are too large for a topic. Put returns nil once the object is durable;
// it retries until ctx ends. A caller that passes a key again passes the same bytes.
type LetterObjects interface {
	Put(ctx context.Context, key string, object []byte) error
}

// DeadLettersConfig configures the dead letters of one table.
type DeadLettersConfig struct {
	Pipeline string
	// Topic returns the dead-letter topic to use for a source topic. An error holds the claims.
	Topic   func(source string) (LetterTopic, error)
	Objects LetterObjects
	// Guard is the only place that retries requests about the dead-letter topics.
	Guard *reliability.Guard
}

// DeadLetters writes dead letters: it implements [connector.DeadLetters]. It sends nothing in the background. Dead
// letters for which Write returned an error may or may not be in the topic; the caller writes them again, and repeats
// have the same coordinates.
//
// Dead letters of one source partition keep their order: they go to one partition of the dead-letter topic, one batch
// at a time.
type DeadLetters struct {
	client *Client
	cfg    DeadLettersConfig
	logger *slog.Logger
	linked prometheus.Counter
	topics map[LetterTopic]*letterTopic
	failed *letterTopic // the topic at which the last Write failed; nil if it succeeded
}

var _ connector.DeadLetters = (*DeadLetters)(nil)

// NewDeadLetters returns a writer of dead letters. It connects when it is first used. reg may be nil.
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

// The largest sizes, in bytes, of one record batch and of all batches that are sent together (a round). A dead letter
// that is larger than letterBatchBytes gets a batch of its own.
const (
	letterBatchBytes = 1 << 20
	letterRoundBytes = 4 << 20
)

// Write writes dead letters and returns when all are durable; see [connector.DeadLetters].
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
	// After an error the caller calls Write again every minute, with all dead letters. So the topic that failed comes
	// first: if it fails again, Write returns before it writes the dead letters of the other topics once more.
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
		t.forget() // an operator who fixes the topic may change any setting
		if ctx.Err() != nil {
			return classify.Mark(context.Cause(ctx), classify.Canceled)
		}
		return t.asHold(err)
	}
	return nil
}

// topic returns the dead-letter topic of a source topic, with the state that is kept about it.
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

// backlog has the dead letters of one source partition that are not acknowledged yet, in order.
type backlog struct {
	source  connector.Partition
	letters []unwritten
}

type unwritten struct {
	letter *deadletter.Letter
	stamp  bool // the topic refused the record's timestamp, so the time of writing is used
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

// letterBatch is one record batch to be sent to one partition. From each of its backlogs it has the first dead letters.
type letterBatch struct {
	produceBatch
	parts   []letterPart
	bytes   int         // an upper bound for the size of the records
	limit   int         // the size limit for which the dead letters were rendered
	refused kafka.Error // the broker's error that only a different batch can avoid; 0 if there was none
}

type letterPart struct {
	*backlog
	n int
}

// settle removes the dead letters of the batch from their backlogs, because the broker has acknowledged them.
func (b *letterBatch) settle() {
	for _, p := range b.parts {
		p.letters = p.letters[p.n:]
	}
}

// stamp makes the next rendering of these dead letters use the time of writing as their timestamp, instead of the
// timestamp of the source record. It returns false if that was already so for all of them.
func (b *letterBatch) stamp() (changed bool) {
	for _, p := range b.parts {
		for i := range p.letters[:p.n] {
			changed = changed || !p.letters[i].stamp
			p.letters[i].stamp = true
		}
	}
	return changed
}

// errRefused means that the topic refuses a batch but may accept a different one, for example a smaller one. Then write
// makes new batches. The field refused of each batch has the broker's error. The class is Fatal, so that the guard does
// not send the same batches again.
var errRefused = classify.Mark(errors.New("refused"), classify.Fatal)

// write writes dead letters to one topic in rounds, and returns nil once all are acknowledged. It returns an error if
// neither a retry nor different batches can help.
func (d *DeadLetters) write(ctx context.Context, t *letterTopic, waiting []*backlog) error {
	if time.Since(t.polled) > pollEvery {
		t.forget()
	}
	about := batchOf(waiting)
	for {
		// The size limit of the topic decides how dead letters are rendered, so the topic is read first.
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

// batchOf returns a log attribute, the id of the batch that the first of these dead letters comes from. It returns nil
// if there are no dead letters.
func batchOf(waiting []*backlog) []any {
	for _, w := range waiting {
		for _, l := range w.letters {
			return []any{"batch_id", l.letter.Batch}
		}
	}
	return nil
}

// rewriteAfter is how long rendered records may wait. If they waited longer, for example between retries, they are
// rendered again before they are sent, because each record contains its time of writing.
const rewriteAfter = time.Second

// rewrite renders the records of batches again, with now as their time of writing.
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

// record renders a dead letter as a record of at most limit bytes, with now as its time of writing. If the dead letter
// is too large, the record only links to an object, which record also returns; otherwise the object is nil.
func (t *letterTopic) record(l unwritten, limit int, now time.Time) (deadletter.Record, *deadletter.Object, error) {
	letter := *l.letter
	letter.Written = now
	r, object, err := t.form.Fit(letter, limit)
	if l.stamp || t.wouldExpire(r.Timestamp) {
		r.Timestamp = now.UnixMilli()
	}
	return r, object, err
}

// fill makes the batches of a round: at most one for each partition of the topic, none larger than the topic accepts.
// When it returns, all linked objects are in the bucket.
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

// batchFor returns the batch of a round for a partition. It adds one to the round if there is none.
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

// send sends each batch once, and removes acknowledged dead letters from their backlogs. It returns the batches that
// are not acknowledged, and the most serious of their errors, by rank. The error is nil if all are acknowledged.
func (d *DeadLetters) send(ctx context.Context, t *letterTopic, batches []*letterBatch) (left []*letterBatch, err error) {
	if err := d.findTopic(ctx, t); err != nil {
		return batches, err
	}
	worst := func(e error) {
		switch {
		case err == nil, rank(e) > rank(err):
			err = e
		}
		t.stale = true // leaders may have moved, or the topic may have been deleted
	}
	leaders := map[int32][]*letterBatch{}
	var order []int32
	for _, b := range batches {
		switch leader := t.leader(b.partition); {
		case int(b.partition) >= len(t.leaders): // the topic was created again with fewer partitions
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

// rank returns how serious an error of send is: 0 for a transient one, 1 for errRefused, 2 for one that an operator
// must end.
func rank(err error) int {
	switch {
	case errors.Is(err, errRefused):
		return 1
	case classify.Of(err) != classify.Transient:
		return 2
	}
	return 0
}

// done returns the error for a batch that the broker did not acknowledge. It is errRefused if a different batch could
// help; then b.refused has the broker's error. Otherwise it is the broker's error with its class.
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

// produceError is a broker's error with the broker's own text, which names sizes, times and settings.
type produceError struct{ produced }

func (e *produceError) Error() string {
	if e.detail == "" {
		return e.err.Error()
	}
	return e.err.Error() + ": " + e.detail
}

func (e *produceError) Unwrap() error { return e.err }

// objectError is the error of an object that could not be put into the bucket.
type objectError struct{ error }

func (e *objectError) Unwrap() error { return e.error }

// adapt changes how fill makes the next batches after the topic has refused some: smaller, or with the time of writing
// as the timestamp of the dead letters. It returns an error if the topic refuses a timestamp that already was the time
// of writing.
func (d *DeadLetters) adapt(t *letterTopic, refused []*letterBatch) error {
	for _, b := range refused {
		switch b.refused { //nolint:exhaustive // for other codes new metadata are enough
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
