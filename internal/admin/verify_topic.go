package admin

import (
	"cmp"
	"fmt"
	"slices"

	"sluice/connector"
)

// topicCheck compares the rows of one partition with its committed records, which come in the order of their offsets.
// Every record with a value that a commit covers must have a row, or be one of the dead letters that the commit passed or of
// the duplicates that it left out, and every row a record. Health-check records without a row must be among those that the commits say they dropped.
type topicCheck struct {
	rows   *offsetSet
	nulls  bool       // a record without a value has a row like any other
	chains []*covered // what the commits cover, nearly always one chain
	from   int64      // where the log starts: what lies before it cannot be compared
	next   int64      // what lies before was compared

	lettered []lettered // by offset, each with the letters that are not found yet
	unfound  int64      // letters of those before

	records, tombstones int64
	health              int64 // have a value and no row, and claim to be health checks
	lost, foreign       int64
	firstHealth         int64
	firstLost           int64
	firstForeign        int64
}

func newTopicCheck(rows *rowCheck, from int64) *topicCheck {
	c := &topicCheck{rows: &rows.seen, chains: rows.chains, from: from, next: from}
	for _, in := range rows.chains {
		c.lettered = append(c.lettered, in.lettered...)
	}
	slices.SortStableFunc(c.lettered, func(a, b lettered) int { return cmp.Compare(a.From, b.From) })
	return c
}

// record takes the next committed record.
func (c *topicCheck) record(r *connector.Record) {
	c.pass(r.Offset)
	c.next = r.Offset + 1
	c.records++
	has := c.rows.has(r.Offset)
	switch {
	case r.Value == nil && !c.nulls:
		if c.tombstones++; has {
			c.bare(r.Offset)
		}
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

// pass notes that there is no committed record up to an offset.
func (c *topicCheck) pass(to int64) {
	for at, ok := c.rows.from(c.next); ok && at < to; at, ok = c.rows.from(at + 1) {
		c.bare(at)
	}
	c.next = max(c.next, to)
}

// skip passes over offsets that the log has lost meanwhile: their rows cannot be compared.
func (c *topicCheck) skip(to int64) { c.next = max(c.next, to) }

// bare notes rows without a record.
func (c *topicCheck) bare(offset int64) {
	if c.foreign == 0 {
		c.firstForeign = offset
	}
	c.foreign++
}

// covered reports whether a commit says that it holds the offset.
func (c *topicCheck) covered(offset int64) bool {
	for _, in := range c.chains {
		if in.holds(offset) {
			return true
		}
	}
	return false
}

// letter reports whether a record without a row can be a dead letter: of a commit that passed more than were found so far.
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

// deleted takes records without a row for some of the rows that other programs deleted, and returns how many it took.
func (c *topicCheck) deleted(rows int64) int64 {
	n := min(c.lost, max(rows, 0))
	c.lost -= n
	return n
}

// findings says what contradicts the topic. In a compacted topic records go, and their rows rightly stay.
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
	if c.health > dropped+unfound { // who only claims to be a health check may be a letter
		all = append(all, VerifyFinding{at.Topic, at.Partition, "lost", fmt.Sprintf(
			"%d committed records with the header %s=%s have no row, the first one at offset %d; the commits say that they dropped %d",
			c.health, connector.HealthHeader, connector.HealthValue, c.firstHealth, dropped)})
	}
	if c.lost > 0 {
		all = append(all, VerifyFinding{at.Topic, at.Partition, "lost", fmt.Sprintf(
			"%d committed records of the topic have neither a row nor a dead letter, the first one at offset %d", c.lost, c.firstLost)})
	}
	if c.foreign > 0 && !compacted {
		all = append(all, VerifyFinding{at.Topic, at.Partition, "foreign", fmt.Sprintf(
			"%d rows have no committed record with a value in the topic, the first one at offset %d", c.foreign, c.firstForeign)})
	}
	return all
}
