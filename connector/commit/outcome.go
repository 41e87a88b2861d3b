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

// Outcome is what a writer says to the reader.
type Outcome struct {
	Kind    Kind
	Writer  *Writer                       // that says it
	Barrier *lane.Barrier                 // that it is about, nil for a resume or a look
	Plan    *plan.Plan                    // of settled and fenced cuts, if it came so far
	Resumed map[connector.Partition]Found // of resumed
	Err     error                         // of fenced and failed
	Behind  []connector.Position          // of measured
	Unknown bool                          // of measured: nobody could say
	Schema  connector.Schema
	Broken  bool                          // of fenced: the cut failed in our own work, which the writer has said
	Leaves  map[connector.Partition]Leave // of settled and fenced: claims whose records failed in our own work
	Again   bool                          // of fenced: the same records are wanted once more, and soon
}

// Kind is what became of what the reader wanted.
type Kind uint8

// The kinds.
const (
	Committed Kind = iota // a cut is in the log, or had nothing to commit
	Fenced                // positions moved: everything of this table is dropped and resumed
	Failed                // the table cannot be written: its claims hold
	Resumed               // claims know where they stand
	Compared              // idle claims stand where they were
	Measured              // which partitions, of whatever member, are behind the ends
)

// Found is where a claim stands.
type Found struct {
	Session       uint64
	At            connector.Position
	Bounds        connector.Bounds
	OffsetDiffers bool       // the group offset differs
	Hold          *hold.Hold // nil if it may be read
}

func (w *Writer) say(ctx context.Context, o Outcome) {
	o.Writer = w
	if w.snapshot != nil {
		o.Schema = w.snapshot.Schema
	}
	select {
	case w.outcomes <- o:
	case <-ctx.Done():
	}
}

// Retire ends the writer and forgets what was counted of its topics. closed, if it is not nil, is called when it has ended.
func (w *Writer) Retire(topics []string, closed func()) {
	for _, topic := range topics {
		w.metrics.leaves(topic)
	}
	w.closed = closed
	w.stop(classify.Mark(errors.New("no topic feeds the table"), classify.Canceled))
}
