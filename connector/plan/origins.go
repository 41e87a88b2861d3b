package plan

import (
	"cmp"
	"slices"

	"sluice/connector"
	"sluice/reliability/origin"
)

// Origin is the authentic origin of a record: a replay has produced the record to its topic again. Its pipeline and its
// partition are those of the claim, and its key is one of the pipeline's.
type Origin struct {
	Partition connector.Partition
	Session   uint64
	Offset    int64 // of the produced record

	TableID        string
	Intent, Number int64 // see [origin.Origin]
}

// OriginBytes is the memory of an origin in a lane's part, with that of the run that it needs for itself.
const OriginBytes = 320

// OriginCounts count the origins of a claim that a plan passes.
type OriginCounts struct {
	Accepted int64 // the record becomes what any other record becomes
	Repeated int64 // the record is left out: it is a repeat, or its intent was closed
	Missing  int64 // the record is left out: an origin before it has not come
	Unknown  int64 // the table does not know the intent, so the record is an ordinary one
}

// LeftOut returns the number of records that the plan leaves out.
func (n OriginCounts) LeftOut() int64 { return n.Repeated + n.Missing }

// verdict is what Decide found about the origin of one record.
type verdict uint8

const (
	accepted verdict = iota
	repeated
	missing
	unknown
)

// judgedOrigin is the verdict about the origin at an offset. Accepted is the number of accepted origins after it.
type judgedOrigin struct {
	offset   int64
	verdict  verdict
	accepted int64
}

// judgedOrigins has the verdicts about the origins of a sealed batch, by claim in the order of offsets.
type judgedOrigins map[connector.Partition][]judgedOrigin

// judgeOrigins compares the origins of a sealed batch with the table. Which origins of an intent the table has accepted is
// one number: the first so many. So it accepts only the next one. A verdict depends on earlier records of the claim
// alone, so it stays right if the plan ends the claim before the batch does.
func judgeOrigins(batch *SealedBatch, s *connector.Snapshot, pipeline string) judgedOrigins {
	if len(batch.Origins) == 0 {
		return nil
	}
	all := map[connector.Partition][]*Origin{}
	for i := range batch.Origins {
		o := &batch.Origins[i]
		if span, ok := batch.Claims[o.Partition]; ok && span.Session == o.Session && o.Offset < span.Next {
			all[o.Partition] = append(all[o.Partition], o)
		}
	}
	j := judgedOrigins{}
	for p, of := range all {
		slices.SortFunc(of, func(a, b *Origin) int { return cmp.Compare(a.Offset, b.Offset) })
		intent, n := origin.Accepted(s.Positions[p.OriginsAppID(pipeline)])
		for _, o := range of {
			v := repeated
			switch {
			case o.TableID != s.TableID, o.Intent > intent:
				v = unknown
			case o.Intent == intent && o.Number == n+1:
				v = accepted
				n++
			case o.Intent == intent && o.Number > n:
				v = missing
			}
			j[p] = append(j[p], judgedOrigin{o.Offset, v, n})
		}
	}
	return j
}

// leavesOut reports whether the record at an offset is left out.
func (j judgedOrigins) leavesOut(p connector.Partition, offset int64) bool {
	i, found := slices.BinarySearchFunc(j[p], offset, func(o judgedOrigin, at int64) int { return cmp.Compare(o.offset, at) })
	return found && (j[p][i].verdict == repeated || j[p][i].verdict == missing)
}

// without returns the batch without the records that are left out. It shares everything else with the batch.
func (j judgedOrigins) without(batch *SealedBatch) *SealedBatch {
	if len(j) == 0 {
		return batch
	}
	rest := *batch
	rest.Candidates = slices.DeleteFunc(slices.Clone(batch.Candidates), func(c Candidate) bool {
		return c.within(batch.Claims) && j.leavesOut(c.Partition, c.Offset)
	})
	rest.Chunks = slices.Clone(batch.Chunks)
	for i := range rest.Chunks {
		c := &rest.Chunks[i]
		// A record with an origin has a run of its own.
		left := func(r Run) bool {
			return r.Within(batch.Claims) && r.First == r.Last && j.leavesOut(r.Partition, r.First)
		}
		if slices.ContainsFunc(c.Runs, left) {
			c.Runs = slices.DeleteFunc(slices.Clone(c.Runs), left)
		}
	}
	return &rest
}

// pass adds to a plan what it needs for the origins of a claim that it passes, and counts them: the txn with the accepted
// ones, and the condition that the table has accepted the same origins as when these were judged, because any change of
// them may change the verdicts.
func (j judgedOrigins) pass(p *Plan, s *connector.Snapshot, partition connector.Partition) (n OriginCounts) {
	next, newest := p.Next[partition].Next, int64(-1)
	for _, o := range j[partition] {
		if o.offset >= next {
			break
		}
		newest = o.accepted
		switch o.verdict {
		case accepted:
			n.Accepted++
		case repeated:
			n.Repeated++
		case missing:
			n.Missing++
		case unknown:
			n.Unknown++
		}
	}
	if newest < 0 {
		return n
	}
	appID := partition.OriginsAppID(p.pipeline)
	before, known := s.Positions[appID]
	if !known {
		before = -1
	}
	p.expects[appID] = before
	if n.Accepted > 0 {
		intent, _ := origin.Accepted(before)
		p.Commit.Txns = append(p.Commit.Txns, connector.Txn{AppID: appID, Version: origin.Txn(intent, newest)})
	}
	if p.Origins == nil {
		p.Origins = map[connector.Partition]OriginCounts{}
	}
	p.Origins[partition] = n
	return n
}

// OpenedSince reports whether the batch has an origin of an intent that the snapshot does not know yet. A newer snapshot
// may know it.
func (b *SealedBatch) OpenedSince(s *connector.Snapshot, pipeline string) bool {
	return slices.ContainsFunc(b.Origins, func(o Origin) bool {
		intent, _ := origin.Accepted(s.Positions[o.Partition.OriginsAppID(pipeline)])
		return o.TableID == s.TableID && o.Intent > intent
	})
}
