package plan

import (
	"iter"
	"maps"
	"slices"

	"sluice/connector"
	"sluice/idempotency"
)

// duplicate is a record that becomes no row because an earlier record of its partition has the same fingerprint.
type duplicate struct {
	idempotency.Coordinates
	Fingerprint idempotency.Fingerprint
}

// deduction decides which rows of a sealed batch are duplicates.
type deduction struct {
	judges map[connector.Partition]*idempotency.Judge
	kept   int // how many duplicates to keep for the log at most
}

// deduct prepares to leave out duplicates from a plan. It returns nil if the table declares no identity; then no row is
// a duplicate.
func deduct(batch *SealedBatch, p *Plan, s *connector.Snapshot, t *Terms) *deduction {
	if t.Window == 0 {
		return nil
	}
	rows := map[connector.Partition]int{}
	for _, c := range batch.Chunks {
		for _, r := range c.Runs {
			if c.Entries != nil && r.Within(p.Next) {
				rows[r.Partition] += int(r.To - r.From)
			}
		}
	}
	d := &deduction{map[connector.Partition]*idempotency.Judge{}, t.Duplicates}
	for partition, n := range rows {
		newest, ok := s.Positions[partition.NewestAppID(t.Pipeline)]
		if !ok {
			newest = idempotency.Never
		}
		d.judges[partition] = idempotency.NewJudge(t.Window, t.Now, newest, batch.Seen[partition], n)
	}
	p.kept = map[connector.Partition][][]idempotency.Entry{}
	p.now = t.Now
	return d
}

// rows yields the parts of a run that become rows, without the duplicates. It adds to the plan the entries to store and
// the duplicates to log. The caller must pass the runs of a claim in the order of their offsets.
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
			if e := c.Entries[row]; len(p.Skipped) < d.kept {
				p.Skipped = append(p.Skipped, duplicate{idempotency.Coordinates{Partition: r.Partition, Offset: e.Offset}, e.Fingerprint})
			}
			if !keep(from, row) {
				return
			}
			from = row + 1
		}
		keep(from, r.To)
	}
}

// done adds to the plan, for each claim, how many identities were in the dedup window and how many were new. If the
// newest timestamp of a claim has grown, done also adds a txn with it.
func (d *deduction) done(p *Plan, s *connector.Snapshot) {
	if d == nil {
		return
	}
	p.Judged = map[connector.Partition]idempotency.Counts{}
	for partition, judge := range d.judges {
		p.Judged[partition] = judge.Counts()
	}
	for _, partition := range slices.SortedFunc(maps.Keys(p.Next), connector.Partition.Compare) {
		judge := d.judges[partition]
		if judge == nil {
			continue
		}
		appID := partition.NewestAppID(p.pipeline)
		if before, ok := s.Positions[appID]; judge.Newest() != idempotency.Never && (!ok || judge.Newest() > before) {
			p.Commit.Txns = append(p.Commit.Txns, connector.Txn{AppID: appID, Version: judge.Newest()})
		}
	}
}

// Remembered yields the entries of a claim that the store must keep once the plan is committed: one for each row with
// an identity, at the time that counts for the window (see [idempotency.Effective]).
func (p *Plan) Remembered(partition connector.Partition) iter.Seq[idempotency.Entry] {
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
