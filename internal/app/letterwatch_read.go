package app

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"sluice/connector"
	"sluice/health/lettercount"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/sink/delta"
)

// errMoved means that a dead-letter topic was deleted, or created again, between two requests. The next poll reads the
// new topic.
var errMoved = errors.New("the dead-letter topic was deleted or created again during the count")

// readLetters adds the new dead letters of all dead-letter topics and letter tables to the tally, and removes those of topics that Kafka
// no longer has. If a dead-letter topic cannot be read, o gets a failure for each topic that writes to it.
func (w *letterWatch) readLetters(ctx context.Context, o *outlook) {
	names := slices.Sorted(maps.Keys(o.dead))
	maps.DeleteFunc(w.archives, func(table string, _ *delta.Follower) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return w.letterTable(name) == table })
	})
	failed := func(err error, dead ...string) {
		for _, name := range dead {
			o.fail(err, o.dead[name]...)
		}
	}
	if err := w.stands(""); err != nil {
		failed(err, names...)
		return
	}
	asking, cancel := context.WithTimeout(ctx, lettersTimeout)
	defer cancel()
	found, refused, err := w.find(asking, names...)
	if err != nil {
		failed(err, names...)
		return
	}
	there := map[idempotency.Partition]bool{}
	var positions []connector.Position
	for name, topic := range found {
		for _, id := range topic.Partitions {
			p := connector.Partition{Cluster: topic.Cluster, Topic: name, TopicID: topic.ID, ID: id}
			there[p] = true
			positions = append(positions, connector.Position{Partition: p, Next: -1, Epoch: -1})
		}
	}
	for name, err := range refused {
		failed(err, name)
	}
	w.tally.Keep(func(p idempotency.Partition) bool { return there[p] || refused[p.Topic] != nil }) // if Kafka refuses a topic now, its dead letters stay counted
	bounds, err := w.reader.Log.Bounds(asking, positions)
	for _, at := range positions {
		p := at.Partition
		b, known := bounds[p]
		if !known {
			failed(cmp.Or(err, errMoved), p.Topic) // without an error, Kafka no longer has the partition
			continue
		}
		if err := w.readPartition(ctx, o, p, b); errors.Is(err, lettercount.ErrFull) {
			o.notes = append(o.notes, "the memory for dead letters is full: the count is too low")
			return
		} else if err != nil {
			failed(err, p.Topic)
		}
	}
}

// pace bounds the load of long work: after some work it pauses three times as long.
type pace struct{ since time.Time }

func newPace() *pace { return &pace{time.Now()} }

// rest pauses three times as long as the work since the last rest took, but at most a second. If ctx ends, it returns
// the cause.
func (p *pace) rest(ctx context.Context) error {
	err := reliability.Wait(ctx, min(3*time.Since(p.since), time.Second))
	p.since = time.Now()
	return err
}
