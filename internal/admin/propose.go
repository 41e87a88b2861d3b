package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/hold"
)

// SchemaQuery says from which records [ProposeSchema] derives columns.
type SchemaQuery struct {
	Topic   string
	Records int  // how many of the newest records to read
	Values  bool // with a value of each column
	Within  time.Duration
}

// SchemaProposal has the columns that fit records of a topic.
type SchemaProposal struct {
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"` // number of partitions that were read
	Records    int64  `json:"records"`    // number of records from which the columns are derived
	Tombstones int64  `json:"tombstones"`
	// HealthRecords are health-check records, which are left out.
	HealthRecords int64 `json:"health_records"`
	// Refused are records that are no JSON objects, and become dead letters under any schema.
	Refused []ReasonCount    `json:"refused"`
	Columns []ProposedColumn `json:"columns"` // in the order in which the fields were first seen
	// More is the number of values of fields that were left out because the records have too many different fields.
	More int64 `json:"more"`
}

// ProposedColumn is a field of the records, and the column for it.
type ProposedColumn struct {
	Field string `json:"field"`
	// DDL declares the column. It is "" if the field has none; then Problem says why.
	DDL     string `json:"ddl,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Raw is true if the values have kinds that no type holds together.
	Raw     bool  `json:"raw,omitempty"`
	Records int64 `json:"records"` // number of records in which the field has a value
	Nulls   int64 `json:"nulls"`   // number of records in which it is null
	// Kinds are the kinds of its values, the most frequent first.
	Kinds []ValueCount `json:"kinds"`
	// Conflicts are the places, in the field or within it, whose values no type holds together.
	Conflicts []ValueConflict `json:"conflicts,omitempty"`
	Value     *string         `json:"value,omitempty"` // the JSON of a value, if the query asks for one
}

// ValueCount is a number of values of one kind.
type ValueCount struct {
	Kind  string `json:"kind"`
	Count int64  `json:"count"`
}

// ValueConflict is a place in records whose values have kinds that no type holds together.
type ValueConflict struct {
	Path  string       `json:"path"`
	Kinds []ValueCount `json:"kinds"`
}

// maxProposedFields bounds the different fields that a proposal notes, nested ones included.
const maxProposedFields = 10_000

// ProposeSchema derives columns from the newest records of a topic, which need not be configured. It changes nothing: it
// joins no group and commits no offsets.
func ProposeSchema(ctx context.Context, a *Access, q SchemaQuery) (*SchemaProposal, error) {
	r, end, err := lookup.NewReader(ctx, a.Config, q.Within)
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer end()
	topic, err := r.Topic(q.Topic)
	if held, ok := errors.AsType[*hold.Error](err); ok && held.Reason == hold.TopicMissing {
		return nil, fail.Found(held)
	}
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	s := newSampler(a, q)
	if err := s.read(ctx, r, topic); err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: topic %s: %w", q.Topic, err))
	}
	return s.proposal(), nil
}

// sampler collects what records have.
type sampler struct {
	access        *Access
	query         SchemaQuery
	healthRecords bool // true if health-check records become rows
	checker       *decode.Checker
	observer      *schema.Observer
	found         SchemaProposal
	refused       map[decode.Reason]int
	values        map[string]string // a value of each field, as JSON
}

func newSampler(a *Access, q SchemaQuery) *sampler {
	s := &sampler{access: a, query: q, checker: decode.NewChecker(), observer: schema.NewObserver(maxProposedFields), refused: make(map[decode.Reason]int), values: map[string]string{}}
	s.found = SchemaProposal{Topic: q.Topic, Refused: []ReasonCount{}, Columns: []ProposedColumn{}}
	t, meant, err := a.Config.Route(q.Topic)
	s.healthRecords = meant && err == nil && !t.HealthRecords.Drop
	return s
}

// span are offsets of a partition.
type span struct {
	partition connector.Partition
	from, to  int64
}

// read reads the newest records: as many of each partition as possible, and more of some partitions if others have few.
func (s *sampler) read(ctx context.Context, r *lookup.Reader, topic connector.Topic) error {
	var spans []span
	for _, p := range topic.All() {
		b, err := r.Bounds(p)
		if err != nil {
			return fmt.Errorf("ends of %v: %w", p, err)
		}
		spans = append(spans, span{p, b.LogStart, b.LastStable})
	}
	sample := newest(spans, int64(s.query.Records))
	var done, total int64
	for _, at := range sample {
		total += at.to - at.from
	}
	for _, at := range sample {
		s.found.Partitions++
		err := r.Span(ctx, at.partition, at.from, at.to, func(record *connector.Record) error {
			if record.Offset < at.from {
				return nil
			}
			s.access.passed(done+record.Offset-at.from, total)
			return s.record(record)
		}, func(int64) error { return nil })
		done += at.to - at.from
		if err != nil {
			return err
		}
	}
	return nil
}

// newest returns the last offsets of each span, n in total if there are as many. Spans without offsets are left out.
func newest(spans []span, n int64) (all []span) {
	spans = slices.SortedStableFunc(slices.Values(spans), func(x, y span) int { return cmp.Compare(x.to-x.from, y.to-y.from) })
	for i, at := range spans { // the shortest first, which leave their share to the others
		left := int64(len(spans) - i)
		share := min(at.to-at.from, (n+left-1)/left)
		if n -= share; share > 0 {
			all = append(all, span{at.partition, at.to - share, at.to})
		}
	}
	slices.SortFunc(all, func(x, y span) int { return x.partition.Compare(y.partition) })
	return all
}

func (s *sampler) record(r *connector.Record) error {
	switch {
	case !s.healthRecords && connector.ClaimsHealthCheck(r.Headers):
		s.found.HealthRecords++
		return nil
	case r.Value == nil:
		s.found.Tombstones++
		return nil
	}
	if why, ok := s.checker.Check(r.Value); !ok {
		s.refused[why]++
		return nil
	}
	s.found.Records++
	if s.query.Values {
		s.keepValues(r.Value)
	}
	return s.observer.Observe(r.Value)
}

// keepValues keeps the first value of each field.
func (s *sampler) keepValues(record []byte) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(record, &fields) != nil {
		return // cannot happen: the checker accepted the record
	}
	for name, value := range fields {
		if _, have := s.values[name]; !have && len(s.values) < maxProposedFields && string(value) != "null" {
			s.values[name] = shortened(string(value))
		}
	}
}

// shortened returns the beginning of a text, with an ellipsis if it is longer.
func shortened(text string) string {
	const longest = 60
	if len(text) <= longest {
		return text
	}
	end := longest
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

func (s *sampler) proposal() *SchemaProposal {
	for why, n := range s.refused {
		s.found.Refused = append(s.found.Refused, ReasonCount{why.String(), n})
	}
	slices.SortFunc(s.found.Refused, func(x, y ReasonCount) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Reason, y.Reason))
	})
	root := s.observer.Shape()
	columns := map[string]schema.Field{}
	for _, f := range root.Columns() {
		columns[f.Source()] = f.Declared()
	}
	for _, name := range root.Names() {
		field := root.Field(name)
		c := ProposedColumn{Field: name, Records: field.Values(), Nulls: field.Count(schema.NullValue), Kinds: kindsOf(field), Conflicts: conflicts(field, name)}
		if f, ok := columns[name]; ok && name != "" {
			c.DDL, c.Raw = f.DDL(), f.Raw()
		} else {
			c.Problem = problemOf(name, field)
		}
		if v, ok := s.values[name]; ok {
			c.Value = &v
		}
		s.found.Columns = append(s.found.Columns, c)
	}
	s.found.More = s.observer.More()
	return &s.found
}

// problemOf returns the reason why a field has no column.
func problemOf(name string, of *schema.Shape) string {
	switch {
	case of.Values() == 0:
		return "it is always null, so its type is unknown"
	case name == "":
		return "its name is empty, and schema cannot declare it"
	}
	return "its objects and arrays are empty, so its type is unknown"
}

// kindsOf returns the kinds of the values that are not null, the most frequent first.
func kindsOf(of *schema.Shape) []ValueCount {
	all := []ValueCount{}
	for _, k := range schema.ValueKinds() {
		if n := of.Count(k); n > 0 && k != schema.NullValue {
			all = append(all, ValueCount{k.String(), n})
		}
	}
	slices.SortStableFunc(all, func(x, y ValueCount) int { return cmp.Compare(y.Count, x.Count) })
	return all
}

// conflicts returns the places at a path and below it with values that no type holds together.
func conflicts(of *schema.Shape, path string) (all []ValueConflict) {
	if of.Mixed() {
		all = append(all, ValueConflict{path, kindsOf(of)})
	}
	for _, name := range of.Names() {
		all = append(all, conflicts(of.Field(name), path+"."+name)...)
	}
	if of.Element() != nil {
		all = append(all, conflicts(of.Element(), path+"[]")...)
	}
	return all
}
