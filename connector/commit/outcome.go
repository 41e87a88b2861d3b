package commit

import (
	"context"
	"errors"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/reliability/hold"
)

// Outcome is the result of a request to a writer.
type Outcome struct {
	Kind    Kind
	Writer  *Writer                       // sender
	Barrier *lane.Barrier                 // of the sealed batch it is about; nil for the other requests
	Plan    *plan.Plan                    // of Committed and Dropped, nil if none was made
	Resumed map[connector.Partition]Found // of Resumed
	Err     error                         // of Dropped and Failed
	Behind  []connector.Position          // of Measured: the partitions that are before their ends
	Unknown bool                          // of Measured: Kafka or the table could not be read
	Schema  connector.Schema              // of the newest snapshot, nil before the first
	Broken  bool                          // of Dropped: the batch failed locally, and the writer has logged it
	Leaves  map[connector.Partition]Leave // of Committed and Dropped: the claims whose records failed locally
	Again   bool                          // of Dropped: the same records should be read again at once
}

// Kind is the kind of an outcome.
type Kind uint8

// The kinds.
const (
	Committed Kind = iota // a sealed batch is in the log, or had nothing to commit
	Dropped               // nothing was committed, or the outcome is unknown: the reader drops all uncommitted records of this table, and its claims resume
	Failed                // the table cannot be written: its claims are held
	Resumed               // the positions of claims are known
	Compared              // idle claims have their expected positions
	Measured              // partitions of all members whose position is before their end
)

// Found is the result of a resume for one claim: its position, or the hold that it needs.
type Found struct {
	Session       uint64
	At            connector.Position
	Bounds        connector.Bounds
	OffsetDiffers bool       // the committed offset differs from the position
	Hold          *hold.Hold // nil if the claim may be read
}

// report sends an outcome to the reader, with the newest schema. It gives up when ctx ends.
func (w *Writer) report(ctx context.Context, o Outcome) {
	o.Writer = w
	if w.snapshot != nil {
		o.Schema = w.snapshot.Schema
	}
	select {
	case w.outcomes <- o:
	case <-ctx.Done():
	}
}

// Retire stops the writer and deletes the metric series of its topics. It calls closed, unless nil, after the writer
// has ended.
func (w *Writer) Retire(topics []string, closed func()) {
	for _, topic := range topics {
		w.metrics.leaves(topic)
	}
	w.closed = closed
	w.stop(classify.Mark(errors.New("no topic feeds the table"), classify.Canceled))
}
