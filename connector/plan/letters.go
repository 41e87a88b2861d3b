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
	// floodMin is the smallest number of bad records of a topic in a sealed batch that can be a flood. Fewer bad
	// records are never a flood, even if the batch has no good ones.
	floodMin = 100
	// detailBytes and traceBytes bound the error texts in a dead letter.
	detailBytes, traceBytes = 500, 500
)

// Terms are the inputs of Decide beside the sealed batch and the snapshot.
type Terms struct {
	Pipeline string
	Member   string                           // the name of the member in dead letters
	Letters  map[string]connector.LetterRules // the rules for dead letters, by topic
	Allowed  map[string]bool                  // the topics of which an operator allows floods now
	Window   time.Duration                    // the length of the dedup window; 0 if the table declares no identity
	Now      time.Time                        // the time of the decision, which only duplicates depend on
	// Duplicates is the number of duplicates that a plan keeps for the log.
	Duplicates int
}

// stops returns the bad record at which each claim must stop: the first one whose candidate has no copy of the record,
// so that it cannot become a dead letter. A claim without such a record is missing. The result is in the order of the
// claims.
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

// lettered returns the candidates that become dead letters, in the order of claims and offsets.
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

// floods returns the holds of a flood: one for each claim of the topic that has bad records, at the first of them. A
// topic has a flood if its share of bad records is too large and no operator has allowed it, because then usually the
// producer or the schema is wrong, and not single records. Without a flood it returns nil.
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
	details := map[string]string{} // the detail of the hold of each topic
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

// mostFrequent returns the reason code that most bad records of a topic have, and how many have it.
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

// letter returns the dead letter of a candidate that has a copy of its record. It shares the bytes of that copy.
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

// trace returns the chain of an error: the type of each error in it, with its text unless that repeats the text of the
// one before. Texts of errors do not quote records.
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

// clip shortens a text to at most most bytes, without splitting a character.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
