package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/health"
	"sluice/internal/config"
	"sluice/internal/laketest"
	"sluice/internal/terminal"
)

// hostile returns a text that contains the number i, in one of many forms. Such texts break a program that makes metric
// labels from the content of records.
func hostile(i int) string {
	shapes := []string{
		"%d", "customer-%d", "\",topic=\"%d", "}\n# TYPE x%d counter\nx 1\n", "le=\"%d\"", "\x00\x01%d", "\xff\xfe%d", "\\%d\\\"", "ключ-%d", "🦀%d",
		"__name__%d", "orders%d", "%d" + strings.Repeat("x", 300), " %d\t", "{{.%d}}", "$(%d)", "../%d", "%d\u202e", "reason=poison,%d", "\r\n%d",
	}
	return fmt.Sprintf(shapes[i%len(shapes)], i)
}

// hostileRecord returns the i-th record of a producer that puts hostile text into each field. A fifth of the records
// are bad.
func hostileRecord(i int) *kgo.Record {
	quoted := func(s string) string {
		text, err := json.Marshal(s) // cannot fail for a string
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	odd, r := hostile(i), &kgo.Record{Topic: []string{"loose", "strict"}[i%2]}
	r.Key = []byte(odd)
	r.Headers = []kgo.RecordHeader{{Key: odd, Value: []byte(odd)}, {Key: "event-id", Value: []byte(odd)}}
	switch i / 2 % 20 {
	case 0: // not JSON
		r.Value = []byte(odd + "{")
	case 1: // a value of the wrong type
		r.Value = fmt.Appendf(nil, `{"n":%s,"s":"x"}`, quoted(odd))
	case 2: // a field that the table does not have
		r.Value = fmt.Appendf(nil, `{"n":1,%s:1}`, quoted(odd))
	case 3: // a name inside of a field
		r.Value = fmt.Appendf(nil, `{"n":1,"o":{%s:{%s:%s}}}`, quoted(odd), quoted(odd), quoted(odd))
	case 4: // a tombstone
	case 5: // a health-check record with a wrong secret
		r.Value = fmt.Appendf(nil, `{"n":%d}`, i)
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "HEALTHCHECK", Value: []byte("TRUE")}, kgo.RecordHeader{Key: "HEALTHCHECK-SECRET", Value: []byte(odd)})
	case 6: // bytes that are no text
		r.Value = bytes.Replace([]byte(`{"n":1,"s":"?"}`), []byte("?"), []byte("\xff"+odd), 1)
	case 7: // a number outside the range of its type
		r.Value = fmt.Appendf(nil, `{"n":1%0*d}`, 30, i)
	default:
		r.Value = fmt.Appendf(nil, `{"n":%d,"s":%s}`, i, quoted(odd))
	}
	return r
}

// TestSeriesAreBounded expects a hundred thousand records with hostile content to add no metric series after the first
// few records of each kind.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	const warm = 2000
	total := 100_000
	if testing.Short() {
		total = 10_000
	}
	l := newLake(t, `
defaults: {schema: "n int, s string, o struct<p:int>", commit: {every: 100ms}, identity: {by: "header:event-id"}}
topics: {loose: {unknown_fields: ignore}, strict: {unknown_fields: dead_letter}}`)
	withProbes(t, l)
	for _, topic := range []string{"loose", "strict"} {
		l.Create(topic, 1)
	}
	out := &laketest.Log{}
	var err error
	if l.Logger, err = terminal.NewLogger(config.Log{Level: "info", Format: "json"}, out); err != nil {
		t.Fatal(err)
	}
	s := l.start()
	made := 0
	produce := func(to int) {
		for ; made < to; made++ {
			l.Client.Produce(t.Context(), hostileRecord(made), func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := l.Client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Await("the tables have all of it, letters too", func() bool {
			ends, err := l.Admin.ListEndOffsets(t.Context(), "loose", "strict", "loose-dlq", "strict-dlq")
			if err != nil {
				return false
			}
			partitions, behind := s.Report().Partitions, 0
			for topic, of := range ends {
				for id, end := range of {
					if !slices.ContainsFunc(partitions, func(p health.Partition) bool {
						return p.Topic == topic && p.ID == id && p.Position == end.Offset
					}) {
						behind++
					}
				}
			}
			return behind == 0
		})
	}
	// The watches of lag and retention add the series of a partition at their next poll, so these series may come late.
	looks := regexp.MustCompile(`^sluice_(seconds_to_data_loss|topic_retention_seconds|adjusted_lag_records|partition_(verdict|freshness_seconds))\{` +
		`(group="p",)?(partition="0",)?topic="(loose|strict)(-dlq)?"(,verdict="[A-Z]+")?\}$`)
	// On a busy machine, slow connections and requests may add series. Their label values come from a fixed list of
	// codes.
	troubles := regexp.MustCompile(`^sluice_(lag_checked_timestamp_seconds|fetch_errors_total|kafka_connects_total|group_rejoins_total|store_operation_seconds_[a-z]+)` +
		`(\{[a-z]+="[a-zA-Z0-9_+.-]{1,20}"(,[a-z]+="[a-zA-Z0-9_+.-]{1,20}")*\})?$`)
	seen := func() []string {
		return slices.DeleteFunc(series(scrape(t, out)), func(s string) bool { return looks.MatchString(s) || troubles.MatchString(s) })
	}
	produce(warm)
	before := seen()
	produce(total)
	after := seen()
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("series of %d records and of %d (-before +after):\n%s", warm, total, d)
	}
	if rows, letters := sumOf(t, s, "sluice_rows_committed_total"), sumOf(t, s, "sluice_dead_letters_total"); rows < float64(total)/2 || letters < float64(total)/6 {
		t.Errorf("%v rows, %v letters: it was to have both", rows, letters)
	}
	if held := heldIn(s); len(held) > 0 {
		t.Errorf("holds %v", held)
	}
	t.Logf("%d records, %d series, %v rows, %v letters", total, len(after), sumOf(t, s, "sluice_rows_committed_total"), sumOf(t, s, "sluice_dead_letters_total"))
}
