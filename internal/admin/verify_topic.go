package admin

import (
	"cmp"
	"fmt"
	"slices"

	"sluice/connector"
)

// topicCheck compares the rows of one partition with its committed records, in the order of offsets. Each record with a
// value that a commit covers must have a row, or be one of the commit's dead letters, duplicates or dropped
// health-check records. Each row must have a record.
type topicCheck struct {
	rows   *offsetSet
	nulls  nulls
	chains []*covered // the commits by pipeline and topic id; nearly always one chain
	from   int64      // the start of the log; rows before it cannot be compared
	next   int64      // offsets before this one have been compared

	lettered []lettered // sorted by offset; letters counts those for which no record was found yet
	unfound  int64      // the dead letters and duplicates of earlier commits for which no record was found

	records, tombstones int64
	health              int64 // records with a value and the health-check header that have no row
	lost, foreign       int64
	excused             int64 // records without a row that no longer count as lost: other programs deleted as many rows
	firstHealth         int64
	firstLost           int64
	firstForeign        int64
}

// nulls says whether records without a value must have rows.
type nulls uint8

const (
	nullsHaveNone nulls = iota
	nullsHaveRows
	// nullsMayHaveRows is for a topic whose tombstones become rows now: the commits do not say since when.
	nullsMayHaveRows
)

func newTopicCheck(rows *rowCheck, from int64) *topicCheck {
	c := &topicCheck{rows: &rows.seen, chains: rows.chains, from: from, next: from}
	for _, in := range rows.chains {
		c.lettered = append(c.lettered, in.lettered...)
	}
	slices.SortStableFunc(c.lettered, func(a, b lettered) int { return cmp.Compare(a.From, b.From) })
	return c
}

// record compares the next committed record.
func (c *topicCheck) record(r *connector.Record) {
	c.pass(r.Offset)
	c.next = r.Offset + 1
	c.records++
	has := c.rows.has(r.Offset)
	switch {
	case r.Value == nil && c.nulls != nullsHaveRows:
		if c.tombstones++; has && c.nulls == nullsHaveNone {
			c.bare(r.Offset)
		}
	case has && c.replayed(r.Offset):
		c.letter(r.Offset) // the row was made of one of the dead letters of the commit, so it counts as found
	case !has && c.covered(r.Offset) && connector.ClaimsHealthCheck(r.Headers):
		if c.health++; c.health == 1 {
			c.firstHealth = r.Offset
		}
	case !has && c.covered(r.Offset) && !c.letter(r.Offset):
		if c.lost++; c.lost == 1 {
			c.firstLost = r.Offset
		}
	}
}

// pass counts each row from next up to the offset to as a row without a record, because the topic has no committed
// record there.
func (c *topicCheck) pass(to int64) {
	for at, ok := c.rows.from(c.next); ok && at < to; at, ok = c.rows.from(at + 1) {
		c.bare(at)
	}
	c.next = max(c.next, to)
}

// skip leaves out of the comparison the offsets before to, because retention has deleted their records during it.
func (c *topicCheck) skip(to int64) { c.next = max(c.next, to) }

// bare counts a row for which the topic has no record.
func (c *topicCheck) bare(offset int64) {
	if c.foreign == 0 {
		c.firstForeign = offset
	}
	c.foreign++
}

// replayed reports whether a replay made the row at an offset.
func (c *topicCheck) replayed(offset int64) bool {
	return slices.ContainsFunc(c.chains, func(in *covered) bool { return in.replayed.has(offset) })
}

// covered reports whether a commit covers the offset.
func (c *topicCheck) covered(offset int64) bool {
	for _, in := range c.chains {
		if in.holds(offset) {
			return true
		}
	}
	return false
}

// letter reports whether a record without a row may have become a dead letter or a duplicate: the commit that covers
// its offset has more of them than were found so far. If so, it counts one more as found.
func (c *topicCheck) letter(offset int64) bool {
	for len(c.lettered) > 0 && c.lettered[0].Next <= offset {
		c.unfound += c.lettered[0].letters
		c.lettered = c.lettered[1:]
	}
	for i := range c.lettered {
		switch l := &c.lettered[i]; {
		case l.From > offset:
			return false
		case offset < l.Next && l.letters > 0:
			l.letters--
			return true
		}
	}
	return false
}

// deleted removes lost records from the findings, because other programs deleted this number of rows. It returns how
// many it removed, which is at most rows.
func (c *topicCheck) deleted(rows int64) int64 {
	n := min(c.lost, max(rows, 0))
	c.lost -= n
	c.excused += n
	return n
}

// findings returns the contradictions between rows and topic. If the topic is compacted, a row without a record is no
// contradiction.
func (c *topicCheck) findings(at source, compacted bool) []VerifyFinding {
	var all []VerifyFinding
	dropped := int64(0)
	for _, in := range c.chains {
		dropped += in.health
	}
	unfound := c.unfound
	for _, l := range c.lettered {
		unfound += l.letters
	}
	if c.health > dropped+unfound { // a record with this header may also have become a dead letter
		all = append(all, VerifyFinding{at.Topic, at.Partition, "lost", fmt.Sprintf(
			"%d committed records with the header %s=%s have no row, the first one at offset %d; the commits say that they dropped %d",
			c.health, connector.HealthHeader, connector.HealthValue, c.firstHealth, dropped)})
	}
	if c.lost > 0 {
		detail := fmt.Sprintf("%d committed records of the topic have neither a row nor a dead letter, the first one at offset %d", c.lost, c.firstLost)
		if c.excused > 0 {
			detail = fmt.Sprintf("%d committed records of the topic have neither a row nor a dead letter, beside %d whose rows other programs deleted; "+
				"the first one of both is at offset %d", c.lost, c.excused, c.firstLost)
		}
		all = append(all, VerifyFinding{at.Topic, at.Partition, "lost", detail})
	}
	if c.foreign > 0 && !compacted {
		all = append(all, VerifyFinding{at.Topic, at.Partition, "foreign", fmt.Sprintf(
			"%d rows have no committed record with a value in the topic, the first one at offset %d", c.foreign, c.firstForeign)})
	}
	return all
}
