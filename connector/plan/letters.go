package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

const (
	// floodMin is the number of bad records of a topic in a sealed batch below which no share is a flood.
	floodMin = 100
	// detailBytes and traceBytes bound the error texts in a dead letter.
	detailBytes, traceBytes = 500, 500
)

// Terms are the inputs of Decide beside the sealed batch and the snapshot.
type Terms struct {
	Pipeline string
	Member   string                           // written into dead letters
	Letters  map[string]connector.LetterRules // by topic
	Allowed  map[string]bool                  // topics whose floods an operator allows at present
	Window   time.Duration                    // dedup window; 0: the table declares no identity
	Now      time.Time                        // used for duplicates only
	// Duplicates is the number of duplicates that a plan keeps for the log.
	Duplicates int
}

// stops returns, for each claim, the first bad record that cannot become a dead letter, because its candidate has no
// copy of the record. The claim stops at this record. The result is ordered by claim.
func stops(batch *SealedBatch) []Candidate {
	first := map[connector.Partition]Candidate{}
	for _, c := range batch.Candidates {
		if c.Record != nil || !c.within(batch.Claims) {
			continue
		}
		if old, ok := first[c.Partition]; !ok || c.Offset < old.Offset {
			first[c.Partition] = c
		}
	}
	return slices.SortedFunc(maps.Values(first), func(a, b Candidate) int { return a.Partition.Compare(b.Partition) })
}

// lettered returns the candidates that become dead letters, ordered by claim and offset.
func lettered(batch *SealedBatch, next map[connector.Partition]Span) []*Candidate {
	var all []*Candidate
	for i := range batch.Candidates {
		if c := &batch.Candidates[i]; c.Record != nil && c.within(next) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b *Candidate) int {
		return cmp.Or(a.Partition.Compare(b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

// floods checks the share of bad records of each topic before any dead letter is written: a large share usually means
// that the producer or the schema is wrong, not single records. If the share of a topic is too large and no operator
// allows the flood, it returns a hold for each claim of the topic with bad records, at the first of them.
func floods(batch *SealedBatch, next map[connector.Partition]Span, bad []*Candidate, t Terms) []hold.Hold {
	records, spoiled := map[string]int64{}, map[string]int64{}
	for _, c := range bad {
		records[c.Partition.Topic]++
		spoiled[c.Partition.Topic]++
	}
	for _, c := range batch.Chunks {
		for _, r := range c.Runs {
			if r.Within(next) {
				records[r.Partition.Topic] += r.To - r.From
			}
		}
	}
	var holds []hold.Hold
	details := map[string]string{} // by topic
	for i, c := range bad {
		topic := c.Partition.Topic
		first := i == 0 || bad[i-1].Partition != c.Partition
		share := float64(spoiled[topic]) / float64(records[topic])
		if !first || spoiled[topic] < floodMin || share <= t.Letters[topic].HoldAbove || t.Allowed[topic] {
			continue
		}
		if details[topic] == "" {
			reason, n := mostFrequent(bad, topic)
			details[topic] = fmt.Sprintf("%d of the %d records of topic %q in one batch are bad, %d of them for %s",
				spoiled[topic], records[topic], topic, n, reason)
		}
		holds = append(holds, hold.Hold{
			Partition: c.Partition, Reason: hold.Flood, Offset: c.Offset,
			Detail: details[topic] + "; the first one here: " + clip(c.Err.Error(), detailBytes),
		})
	}
	return holds
}

// mostFrequent returns the most frequent reason code among the bad records of a topic, and its count.
func mostFrequent(bad []*Candidate, topic string) (most string, n int) {
	counts := map[string]int{}
	for _, c := range bad {
		if c.Partition.Topic == topic {
			counts[string(connector.CodeOf(c.Err))]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		if counts[reason] > n {
			most, n = reason, counts[reason]
		}
	}
	return most, n
}

// letter returns the dead letter of a candidate that has a record. It shares the record's bytes.
func (c *Candidate) letter(member, batch string) deadletter.Letter {
	at := idempotency.Coordinates{Partition: c.Partition, Offset: c.Offset}
	l := deadletter.Letter{
		Source: at, Timestamp: c.Record.Timestamp, Key: c.Record.Key, Value: c.Record.Value,
		Class: classify.Of(c.Err), Reason: connector.CodeOf(c.Err), Detail: clip(c.Err.Error(), detailBytes), Trace: trace(c.Err),
		Retries: c.Retries, FirstFailure: c.First, LastFailure: c.Last,
		Member: member, Correlation: deadletter.Correlation(at), Batch: batch,
	}
	l.Headers = slices.Grow(l.Headers, len(c.Record.Headers))
	for _, h := range c.Record.Headers {
		l.Headers = append(l.Headers, deadletter.Header{Key: h.Key, Value: h.Value})
	}
	return l
}

// trace returns the types in the chain of an error, each with its text unless that repeats the text before. Texts of
// errors never quote records.
func trace(err error) string {
	var (
		b    strings.Builder
		said string
	)
	for ; err != nil && b.Len() < traceBytes; err = errors.Unwrap(err) {
		if b.Len() > 0 {
			b.WriteString(" < ")
		}
		fmt.Fprintf(&b, "%T", err)
		if text := err.Error(); text != said {
			said = text
			b.WriteString(": " + text)
		}
	}
	return clip(b.String(), traceBytes)
}

// clip shortens a text to at most so many bytes without splitting a character.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
