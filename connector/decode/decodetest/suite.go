// Package decodetest is the conformance suite of decoders: the pipeline's requirements of each format.
package decodetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
)

// Samples are records of a format, and the columns of the table into which the suite decodes them.
type Samples struct {
	// DDL are the columns of the table beside the Kafka columns.
	DDL string
	// Good become rows. The suite sets their offsets.
	Good []connector.Record
	// Bad are records that the decoder must refuse. The keys are the codes of their errors.
	Bad map[string]connector.Record
}

var partition = connector.Partition{Topic: "decodetest", ID: 3}

// Run tests a decoder with at least two good samples and one bad one.
func Run(t *testing.T, d connector.Decoder, s Samples) {
	t.Helper()
	if len(s.Good) < 2 || len(s.Bad) == 0 {
		t.Fatal("decodetest needs two good samples and a bad one")
	}
	suite := suite{decoder: d, samples: s}
	t.Run("GoodRecordsBecomeRows", suite.good)
	t.Run("BadRecordLeavesChunk", suite.bad)
	t.Run("RecordsAreCopied", suite.copied)
	t.Run("BuildersAreIndependent", suite.independent)
	t.Run("DamagedRecordsAreRefusedOrRows", suite.damaged)
}

type suite struct {
	decoder connector.Decoder
	samples Samples
}

func (s suite) builder(t *testing.T) connector.Builder {
	t.Helper()
	columns, err := schema.ParseDDL(s.samples.DDL)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.decoder.Builder(columns.WithKafkaColumns())
	if err != nil {
		t.Fatal(err)
	}
	if b.Rows() != 0 || b.Allocated() != 0 {
		t.Errorf("a new builder has %d rows and %d bytes, want none", b.Rows(), b.Allocated())
	}
	if rows := b.Seal(); rows != nil {
		rows.Release()
		t.Error("sealing a builder without rows returns a batch, want nil")
	}
	return b
}

// record returns a copy of a sample at an offset.
func record(sample connector.Record, offset int64) *connector.Record {
	r := sample
	r.Offset, r.Timestamp = offset, 1_700_000_000_000+offset
	r.Key, r.Value, r.Headers = slices.Clone(sample.Key), slices.Clone(sample.Value), slices.Clone(sample.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = slices.Clone(r.Headers[i].Value)
	}
	return &r
}

// add adds a record, and fails the test unless it becomes one row.
func add(t *testing.T, b connector.Builder, r *connector.Record) {
	t.Helper()
	before := b.Rows()
	if err := b.Add(partition, r); err != nil {
		t.Fatalf("the good record at offset %d: %v", r.Offset, err)
	}
	if b.Rows() != before+1 {
		t.Fatalf("%d rows after a good record, want %d", b.Rows(), before+1)
	}
	if b.Allocated() <= 0 || b.Bytes() < 0 {
		t.Errorf("a chunk with rows has %d bytes allocated and %d of columns", b.Allocated(), b.Bytes())
	}
}

// seal returns the rows as JSON and checks that the builder is empty afterwards.
func seal(t *testing.T, b connector.Builder) string {
	t.Helper()
	n := b.Rows()
	rows := b.Seal()
	if rows == nil {
		t.Fatalf("sealing %d rows returned nil", n)
	}
	defer rows.Release()
	if rows.NumRows() != int64(n) {
		t.Errorf("the batch has %d rows, the builder said %d", rows.NumRows(), n)
	}
	if b.Rows() != 0 || b.Allocated() != 0 {
		t.Errorf("a sealed builder has %d rows and %d bytes, want none", b.Rows(), b.Allocated())
	}
	if b.Sealed() <= 0 {
		t.Errorf("the sealed rows take %d bytes", b.Sealed())
	}
	var text bytes.Buffer
	if err := array.RecordToJSON(rows, &text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// goodRows returns the rows of all good samples.
func (s suite) goodRows(t *testing.T, b connector.Builder) string {
	t.Helper()
	for i, sample := range s.samples.Good {
		add(t, b, record(sample, int64(i)))
	}
	return seal(t, b)
}

func (s suite) good(t *testing.T) {
	b := s.builder(t)
	first := s.goodRows(t, b)
	if second := s.goodRows(t, b); second != first {
		t.Errorf("the second chunk differs from the first:\n%s\n%s", second, first)
	}
}

func (s suite) bad(t *testing.T) {
	want := s.goodRows(t, s.builder(t))
	for code, sample := range s.samples.Bad {
		t.Run(code, func(t *testing.T) {
			b := s.builder(t)
			for i, good := range s.samples.Good {
				rows := b.Rows()
				err := b.Add(partition, record(sample, int64(1000+i)))
				if err == nil {
					t.Fatal("the record became a row")
				}
				if class := classify.Of(err); class != classify.Poison {
					t.Errorf("class %v, want Poison: %v", class, err)
				}
				var coded interface{ Code() string }
				if !errors.As(err, &coded) || coded.Code() != code {
					t.Errorf("error %v has not the code %q", err, code)
				}
				if v := sample.Value; len(v) > 3 && bytes.Contains([]byte(err.Error()), v) {
					t.Errorf("the error quotes the record: %v", err)
				}
				if b.Rows() != rows {
					t.Errorf("%d rows after a bad record, want %d", b.Rows(), rows)
				}
				add(t, b, record(good, int64(i)))
			}
			if got := seal(t, b); got != want {
				t.Errorf("bad records changed the rows:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func (s suite) copied(t *testing.T) {
	want := s.goodRows(t, s.builder(t))
	b := s.builder(t)
	for i, sample := range s.samples.Good {
		r := record(sample, int64(i))
		add(t, b, r)
		clear(r.Key)
		clear(r.Value)
		for _, h := range r.Headers {
			clear(h.Value)
		}
	}
	if got := seal(t, b); got != want {
		t.Errorf("rows changed with the memory of their records:\n%s\nwant\n%s", got, want)
	}
}

func (s suite) independent(t *testing.T) {
	a, b := s.builder(t), s.builder(t)
	add(t, a, record(s.samples.Good[0], 0))
	if b.Rows() != 0 {
		t.Fatalf("a row of one builder is a row of another")
	}
	add(t, b, record(s.samples.Good[1], 1))
	if x, y := seal(t, a), seal(t, b); x == y {
		t.Errorf("two builders returned the same rows: %s", x)
	}
}

// damaged changes bytes of good samples. Each damaged record must become one row or a Poison error, and must not make
// the decoder panic or change the number of rows of other records.
func (s suite) damaged(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	b := s.builder(t)
	rows := 0
	for n := range 5_000 {
		r := record(s.samples.Good[n%len(s.samples.Good)], int64(n))
		for range 1 + random.IntN(3) {
			if len(r.Value) > 0 {
				r.Value[random.IntN(len(r.Value))] = byte(random.IntN(256))
			}
		}
		if random.IntN(4) == 0 && len(r.Value) > 0 {
			r.Value = r.Value[:random.IntN(len(r.Value))]
		}
		err := b.Add(partition, r)
		if err == nil {
			rows++
		} else if class := classify.Of(err); class != classify.Poison {
			t.Fatalf("class %v, want Poison: %v", class, err)
		}
		if b.Rows() != rows {
			t.Fatalf("%d rows after %d good records", b.Rows(), rows)
		}
	}
	if rows > 0 {
		seal(t, b)
	}
}
