package story

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/deadletter"
)

// Letter is a durable dead letter.
type Letter struct {
	Source
	By     string
	Batch  string
	Before int // the number that the table's next version had when the letter became durable
}

// LetterLog is a dead-letter topic. It keeps every letter.
type LetterLog struct {
	mu      sync.Mutex
	letters []Letter
}

// All returns the letters so far.
func (l *LetterLog) All() []Letter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Letter(nil), l.letters...)
}

// Distinct returns the offsets of a partition's records that have a letter, each with the number of its letters.
func (l *LetterLog) Distinct(id int32) map[int64]int {
	offsets := map[int64]int{}
	for _, letter := range l.All() {
		if letter.ID == id {
			offsets[letter.Offset]++
		}
	}
	return offsets
}

// DeadLetters is a member's producer for a LetterLog.
type DeadLetters struct {
	Log    *LetterLog
	Next   func() int // returns the number of the table's next version
	Broker *Broker
	Member string
	// Attempts is the number of retries that a dead letter must name if its record was found at fault, or if the
	// retries of its batch were used up.
	Attempts int
	// Broken is called before each step. If it returns an error, the step fails with this error. May be nil.
	Broken func(step string) error
	// Late counts the goroutines that write letters whose sender no longer waits.
	Late *sync.WaitGroup
	// Hangs is called within each step. The step does not end before Hangs returns. May be nil.
	Hangs func(ctx context.Context, step string)
	// Trace is [Member.Trace].
	Trace func(format string, args ...any)

	mu   sync.Mutex
	dead bool
}

var _ connector.DeadLetters = (*DeadLetters)(nil)

// Kill makes every later step of the producer fail.
func (d *DeadLetters) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
}

// Write appends the letters one after the other. Each try may fail before the first letter, between two letters, or
// after the last one. After a transient failure Write repeats all letters, as the guard of the shipped producer does.
func (d *DeadLetters) Write(ctx context.Context, letters []deadletter.Letter) error {
	for {
		err := d.try(ctx, letters)
		if err == nil {
			d.trace("dead letters: %d durable", len(letters))
			return nil
		}
		if classify.Of(err) != classify.Transient {
			return err
		}
	}
}

func (d *DeadLetters) trace(format string, args ...any) {
	if d.Trace != nil {
		d.Trace(format, args...)
	}
}

func (d *DeadLetters) try(ctx context.Context, letters []deadletter.Letter) error {
	chance := d.Broker.Chance
	if err := d.step(ctx, "letters"); err != nil {
		return err
	}
	for i := range letters {
		// A pause between two letters, in which another member may write letters.
		if chance.Is(4) {
			if err := d.step(ctx, "next letters"); err != nil {
				d.stray(letters[i:])
				return err
			}
		}
		d.append(&letters[i])
	}
	return d.step(ctx, "letters answered")
}

func (d *DeadLetters) step(ctx context.Context, name string) error {
	if err := d.Broker.Chance.Pause(ctx, 100*time.Millisecond); err != nil {
		return classify.Mark(err, classify.Canceled)
	}
	if d.Hangs != nil {
		d.Hangs(ctx, name)
	}
	d.mu.Lock()
	dead := d.dead
	d.mu.Unlock()
	switch flaky := int(d.Broker.Flaky.Load()); {
	case dead:
		return errDead
	case flaky > 0 && d.Broker.Chance.Is(flaky):
		return classify.Mark(errors.New("not enough replicas"), classify.Transient)
	case d.Broken != nil:
		return d.Broken(name)
	}
	return nil
}

// stray makes the first letter durable within three seconds from now, or never. Its sender has died or given up.
func (d *DeadLetters) stray(letters []deadletter.Letter) {
	if d.Broker.Chance.Is(2) {
		return
	}
	late := letters[0]
	late.Value = bytes.Clone(late.Value) // copied, because the sender may release its memory
	d.Late.Go(func() {
		_ = d.Broker.Chance.Pause(context.WithoutCancel(context.Background()), 3*time.Second)
		d.append(&late)
	})
}

func (d *DeadLetters) append(l *deadletter.Letter) {
	if want := d.Broker.value(l.Source.Topic, l.Source.ID, l.Source.Offset); !bytes.Equal(want, l.Value) {
		d.Broker.blame("letter of %v holds %q, its record %q", l.Source, l.Value, want)
	}
	before := d.Next()
	d.Log.mu.Lock()
	defer d.Log.mu.Unlock()
	d.Log.letters = append(d.Log.letters, Letter{
		Source: Source{l.Source.Topic, l.Source.TopicID[15], l.Source.ID, l.Source.Offset, 0}, By: d.Member, Batch: l.Batch, Before: before,
	})
	k := d.Broker.kind(l.Source.Topic, l.Source.ID, l.Source.Offset)
	isolated, retries := k == Breaks || k == Unfit, 0
	if isolated || l.Reason == deadletter.RetriesExhausted {
		retries = d.Attempts
	}
	if l.Member != d.Member || l.Reason == deadletter.Unspecified || l.Class != classify.Poison || isolated != (l.Reason == deadletter.Isolated) ||
		l.Retries != retries || l.LastFailure.Before(l.FirstFailure) {
		d.Broker.blame("letter of %v by %s is %v, %s, by %s after %d retries from %v to %v",
			l.Source, d.Member, l.Class, l.Reason, l.Member, l.Retries, l.FirstFailure, l.LastFailure)
	}
}

// value returns the value that the letter of a record must have.
func (b *Broker) value(topic string, id int32, offset int64) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.valueAt(b.topics[topic].partitions[id], offset)
}

// kind returns the kind of the record at an offset.
func (b *Broker) kind(topic string, id int32, offset int64) Kind {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.topics[topic].partitions[id].kinds[offset]
}

// poison is the error with which the decoder refuses a record.
type poison struct{}

func (poison) Error() string { return "poison" }
func (poison) Code() string  { return "poison" }

var errPoison = fmt.Errorf("row: %w", classify.Mark(poison{}, classify.Poison))
