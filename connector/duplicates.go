package connector

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// Duplicates says which records of a table are the same for their producer, and what remembers them. Those of one source
// partition within the window become one row; nothing else is compared.
type Duplicates struct {
	Identity idempotency.Identity
	Window   time.Duration
	// Sweep is how often what is older than the window is forgotten.
	Sweep time.Duration
	Store idempotency.Store
	// IDs says that the store keeps the producer's ids beside the fingerprints: see [idempotency.Entry].
	IDs bool
	// Reset returns the offset of a partition below which an operator had rows forgotten, 0 if none. Asked by the table's
	// writer, it answers at once. nil: never.
	Reset func(Partition) int64
}

// IDDecoder is a [Decoder] whose builders can set the producer's ids of entries. They take memory, so only a store that
// keeps them asks for them.
type IDDecoder interface {
	Decoder
	// WithIDs returns the same decoder, whose builders set ids.
	WithIDs() Decoder
}

// decoder returns the decoder that the lanes use.
func (t *Target) decoder() Decoder {
	if d, ok := t.Decoder.(IDDecoder); ok && t.Duplicates != nil && t.Duplicates.IDs {
		return d.WithIDs()
	}
	return t.Decoder
}

// duplicate is a record that was left out.
type duplicate struct {
	idempotency.Coordinates
	fingerprint idempotency.Fingerprint
}

// skippedKept is how many duplicates of a plan are kept for the log; all are counted. At DEBUG it is recordLines.
const skippedKept = 100

// duplicatesToLog returns how many duplicates of a plan a logger may need.
func duplicatesToLog(ctx context.Context, logger *slog.Logger) int {
	if logger.Enabled(ctx, slog.LevelDebug) {
		return recordLines
	}
	return skippedKept
}

// duplicateLog logs the duplicates of the commits of one table. Owned by its writer.
type duplicateLog struct {
	lines, hits *reliability.Sparse
	beyond      int64 // duplicates that plans did not keep, since the last line at DEBUG
}

func newDuplicateLog() duplicateLog {
	return duplicateLog{lines: reliability.NewSparse(skippedLines, skippedLinesEach), hits: reliability.NewSparse(recordLines, time.Second)}
}

// tell logs the duplicates of a plan that was committed: at INFO a few, at DEBUG each with its fingerprint, up to recordLines a
// second.
func (l *duplicateLog) tell(ctx context.Context, logger *slog.Logger, p *Plan) {
	if len(p.skipped) == 0 {
		return
	}
	for _, d := range p.skipped[:min(len(p.skipped), skippedKept)] {
		if left, ok := l.lines.Next(); ok {
			logger.InfoContext(ctx, "Skipping duplicate", "topic", d.Topic, "partition", d.ID, "offset", d.Offset,
				"correlation_id", deadletter.Correlation(d.Coordinates), "batch_id", p.Commit.Batch, "left_out", left)
		}
	}
	if !logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	for _, d := range p.skipped {
		if left, ok := l.hits.Next(); ok {
			logger.DebugContext(ctx, "fingerprint hit", "topic", d.Topic, "partition", d.ID, "offset", d.Offset, "fingerprint", d.fingerprint.String(),
				"correlation_id", deadletter.Correlation(d.Coordinates), "batch_id", p.Commit.Batch, "left_out", left+l.beyond)
			l.beyond = 0
		}
	}
	for _, n := range p.judged {
		l.beyond += n.Hits
	}
	l.beyond -= int64(len(p.skipped))
}

// deduction is what decide finds out about the duplicates of a cut.
type deduction struct {
	judges map[Partition]*idempotency.Judge
	kept   int // duplicates, for the log
}

// deduct begins to judge the rows of a plan, nil if its table declares no identity.
func deduct(cut *Cut, p *Plan, s *Snapshot, t *terms) *deduction {
	if t.window == 0 {
		return nil
	}
	rows := map[Partition]int{}
	for _, c := range cut.Chunks {
		for _, r := range c.Runs {
			if c.Entries != nil && r.within(p.Next) {
				rows[r.Partition] += int(r.To - r.From)
			}
		}
	}
	d := &deduction{map[Partition]*idempotency.Judge{}, t.duplicates}
	for partition, n := range rows {
		newest, ok := s.Positions[partition.NewestAppID(t.pipeline)]
		if !ok {
			newest = idempotency.Never
		}
		d.judges[partition] = idempotency.NewJudge(t.window, t.now, newest, cut.Seen[partition], n)
	}
	p.kept = map[Partition][][]idempotency.Entry{}
	p.now = t.now
	return d
}

// rows yields the parts of a run that become rows, and notes in the plan what is remembered of them and what is not one.
// Runs of a claim come in the order of their offsets.
func (d *deduction) rows(p *Plan, c *Chunk, r Run) iter.Seq2[int64, int64] {
	return func(yield func(from, to int64) bool) {
		if d == nil || c.Entries == nil {
			yield(r.From, r.To)
			return
		}
		judge := d.judges[r.Partition]
		keep := func(from, to int64) bool {
			if from == to {
				return true
			}
			p.kept[r.Partition] = append(p.kept[r.Partition], c.Entries[from:to])
			return yield(from, to)
		}
		from := r.From
		for row := r.From; row < r.To; row++ {
			if !judge.Duplicate(c.Entries[row]) {
				continue
			}
			if e := c.Entries[row]; len(p.skipped) < d.kept {
				p.skipped = append(p.skipped, duplicate{idempotency.Coordinates{Partition: r.Partition, Offset: e.Offset}, e.Fingerprint})
			}
			if !keep(from, row) {
				return
			}
			from = row + 1
		}
		keep(from, r.To)
	}
}

// done puts into the plan what its commit says of duplicates: the newest timestamp of each partition beside its position,
// and how many records are left out.
func (d *deduction) done(p *Plan, s *Snapshot) {
	if d == nil {
		return
	}
	p.judged = map[Partition]idempotency.Counts{}
	for partition, judge := range d.judges {
		p.judged[partition] = judge.Counts()
	}
	for _, partition := range slices.SortedFunc(maps.Keys(p.Next), Partition.Compare) {
		judge := d.judges[partition]
		if judge == nil {
			continue
		}
		appID := partition.NewestAppID(p.pipeline)
		if before, ok := s.Positions[appID]; judge.Newest() != idempotency.Never && (!ok || judge.Newest() > before) {
			p.Commit.Txns = append(p.Commit.Txns, Txn{appID, judge.Newest()})
		}
	}
}

// remembered yields what is remembered of a claim once the plan is in the log: rows with an identity, at the time that
// counts.
func (p *Plan) remembered(partition Partition) iter.Seq[idempotency.Entry] {
	return func(yield func(idempotency.Entry) bool) {
		now := p.now.UnixMilli()
		for _, entries := range p.kept[partition] {
			for _, e := range entries {
				at, dated := idempotency.Effective(e.At, now)
				if e.At = at; !dated || e.Fingerprint.IsZero() {
					continue
				}
				if !yield(e) {
					return
				}
			}
		}
	}
}
