package connectortest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/classify"
	"sluice/connector"
)

// Records are the records of one fetch result. Read takes them out of Left, so they can be read once.
type Records struct{ Left []connector.Record }

// Release implements [connector.Records].
func (g *Records) Release() {}

// Read implements [connector.Records].
func (g *Records) Read(block []connector.Record) (int, error) {
	n := copy(block, g.Left)
	if g.Left = g.Left[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Tally is a builder that counts rows and rejects records without a value.
type Tally struct{ Count int }

// Add implements [connector.Builder].
func (b *Tally) Add(_ connector.Partition, r *connector.Record) error {
	if len(r.Value) == 0 {
		return classify.Mark(errors.New("no value"), classify.Poison)
	}
	b.Count++
	return nil
}

// Rows implements [connector.Builder].
func (b *Tally) Rows() int { return b.Count }

// Bytes returns 0.
func (b *Tally) Bytes() int64 { return 0 }

// Allocated returns 0.
func (b *Tally) Allocated() int64 { return 0 }

// Sealed returns 0.
func (b *Tally) Sealed() int64 { return 0 }

// Ignored returns nothing.
func (b *Tally) Ignored() connector.Ignored { return connector.Ignored{} }

// Seal implements [connector.Builder].
func (b *Tally) Seal() arrow.RecordBatch {
	b.Count = 0
	return NoRows{}
}

// NoRows is a record batch on which only Release may be called; every other method panics.
type NoRows struct{ arrow.RecordBatch }

// Release implements [arrow.RecordBatch].
func (NoRows) Release() {}

// Tallies is a decoder that returns Tally builders.
type Tallies struct{}

// Builder implements [connector.Decoder].
func (Tallies) Builder(connector.Schema) (connector.Builder, error) { return &Tally{}, nil }

// LogLines returns the attributes of each line of a log in JSON, and empties the buffer.
func LogLines(t *testing.T, log *bytes.Buffer) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	log.Reset()
	return lines
}
