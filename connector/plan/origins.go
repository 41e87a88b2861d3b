package plan

import (
	"cmp"
	"slices"

	"sluice/connector"
	"sluice/reliability/origin"
)

// Origin is what a record says about the replay that has produced it to its topic again. It is authentic: it is signed
// with a key of this pipeline, and names this pipeline and the partition of the claim.
type Origin struct {
	Partition connector.Partition
	Session   uint64
	Offset    int64 // of the produced record

	TableID        string
	Intent, Number int64 // see [origin.Origin]
}

// OriginCounts are the numbers of origins of a claim before the position that a plan sets, by verdict.
type OriginCounts struct {
	Accepted int64 // the record becomes what any other record becomes
	Repeated int64 // the record is left out: it is a repeat, or its intent was closed
	Missing  int64 // the record is left out: an origin before it has not come
	Unknown  int64 // the table does not know the intent, so the record is an ordinary one
}

// LeftOut returns how many records with an origin the plan leaves out.
func (n OriginCounts) LeftOut() int64 { return n.Repeated + n.Missing }

// verdict is what Decide found about the origin of one record.
type verdict uint8

const (
	accepted verdict = iota
	repeated
	missing
	unknown
)

// judgedOrigin is the verdict about the record at an offset.
type judgedOrigin struct {
	offset  int64
	verdict verdict
}

// judgedOrigins has the verdicts about the origins of a sealed batch, by claim in the order of offsets.
type judgedOrigins map[connector.Partition][]judgedOrigin

// judgeOrigins gives each origin in a sealed batch a verdict. The table keeps, for each claim, the open intent (the
// replay that now produces) and how many of its origins were accepted. Origins are numbered from 1 and accepted only in
// this order, so judgeOrigins accepts an origin only if it is the next one.
//
// A verdict depends only on earlier records of the claim. So it stays right if the plan ends the claim earlier than the
// batch.
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
			j[p] = append(j[p], judgedOrigin{o.Offset, v})
		}
	}
	return j
}

// leavesOut reports whether the record at an offset is left out.
func (j judgedOrigins) leavesOut(p connector.Partition, offset int64) bool {
	i, found := slices.BinarySearchFunc(j[p], offset, func(o judgedOrigin, at int64) int { return cmp.Compare(o.offset, at) })
	return found && (j[p][i].verdict == repeated || j[p][i].verdict == missing)
}

// without returns the batch without the records that are left out because of their origin. It shares the memory of the
// rest with batch.
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
		// The run of a record with an origin has no other record.
		left := func(r Run) bool {
			return r.Within(batch.Claims) && r.First == r.Last && j.leavesOut(r.Partition, r.First)
		}
		if slices.ContainsFunc(c.Runs, left) {
			c.Runs = slices.DeleteFunc(slices.Clone(c.Runs), left)
		}
	}
	return &rest
}

// pass counts the origins of a claim before the position that the plan sets. If there are any, it also adds two things
// to the plan: the txn with the number of accepted origins, if that has grown, and to the precondition that the table
// still has the txn that s shows, because the verdicts depend on it.
func (j judgedOrigins) pass(p *Plan, s *connector.Snapshot, partition connector.Partition) (n OriginCounts) {
	next := p.Next[partition].Next
	for _, o := range j[partition] {
		if o.offset >= next {
			break
		}
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
	if n == (OriginCounts{}) {
		return n
	}
	appID := partition.OriginsAppID(p.pipeline)
	before, known := s.Positions[appID]
	if !known {
		before = -1
	}
	p.expects[appID] = before
	if n.Accepted > 0 {
		intent, earlier := origin.Accepted(before)
		p.Commit.Txns = append(p.Commit.Txns, connector.Txn{AppID: appID, Version: origin.Txn(intent, earlier+n.Accepted)})
	}
	if p.Origins == nil {
		p.Origins = map[connector.Partition]OriginCounts{}
	}
	p.Origins[partition] = n
	return n
}

// OpenedSince reports whether the batch has an origin of a replay that was opened after the snapshot. Then the caller
// must load a newer snapshot, which may show the replay.
func (b *SealedBatch) OpenedSince(s *connector.Snapshot, pipeline string) bool {
	return slices.ContainsFunc(b.Origins, func(o Origin) bool {
		intent, _ := origin.Accepted(s.Positions[o.Partition.OriginsAppID(pipeline)])
		return o.TableID == s.TableID && o.Intent > intent
	})
}
