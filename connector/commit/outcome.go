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
	Writer  *Writer                       // the writer that reports it
	Barrier *lane.Barrier                 // the barrier of the sealed batch that it is about; nil for other requests
	Plan    *plan.Plan                    // the plan that was committed or dropped; nil if none was made
	Resumed map[connector.Partition]Found // for Resumed: what was found for each claim
	Err     error                         // for Dropped and Failed: the reason
	Behind  []connector.Position          // for Measured: the partitions whose position is before their end
	Unknown bool                          // for Measured: true if Kafka or the table could not be read
	Schema  connector.Schema              // the schema of the newest snapshot; nil before the first one
	Broken  bool                          // for Dropped: true if the batch failed locally, which the writer has logged
	Leaves  map[connector.Partition]Leave // for Committed and Dropped: the claims whose records failed locally
	Again   bool                          // for Dropped: true if the same records should be read again at once
}

// Kind is the kind of an outcome.
type Kind uint8

// The kinds of outcomes of a request.
const (
	Committed Kind = iota // a sealed batch is in the log, or had nothing to commit
	Dropped               // nothing was committed, or the outcome is unknown: the reader drops all uncommitted records of this table, and its claims resume
	Failed                // the table cannot be written, so its claims are held
	Resumed               // the positions of claims are known
	Compared              // idle claims have the positions that the reader expects
	Measured              // lists the partitions of all members whose position is before their end
)

// Found is the result of a resume for one claim: its position, or the hold that it needs.
type Found struct {
	Session       uint64
	At            connector.Position
	Bounds        connector.Bounds
	OffsetDiffers bool       // true if the committed offset differs from the position
	Hold          *hold.Hold // nil if the claim may be read
}

// report sends an outcome to the reader, with the newest schema. If ctx ends before the reader takes it, the outcome is
// lost.
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
