package decode

import (
	"fmt"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector"
	"sluice/connector/schema"
)

var _ connector.Grower = JSON{}

// Grow implements [connector.Grower]. It finds the types of the fields that the builders have kept in schema.Rescued,
// over all rows of the pieces, so the order of the rows makes no difference.
func (j JSON) Grow(s connector.Schema, pieces []connector.Piece, now time.Time) (connector.Growth, error) {
	same := connector.Growth{Schema: s}
	table, ok := s.(*schema.Schema)
	if j.NewColumns == nil || !ok {
		return same, nil
	}
	seen, err := observe(table, pieces)
	if err != nil || seen.growth == nil {
		return same, err
	}
	grown, full := seen.growth.Schema(*j.NewColumns, now)
	f := &fitter{limits: j, to: grown}
	if grown != table || seen.late {
		same.Fit = f.fit
	}
	if same.Full = full; !grown.Has([]string{schema.Rescued}) {
		rest, err := f.leaves(same.Fit != nil, pieces)
		if err != nil {
			return same, err
		}
		if rest {
			grown = grown.WithRescued()
			f.to = grown
		}
	}
	same.Schema = grown
	return same, nil
}

// observed is what the rows of pieces have in the column for rescued fields.
type observed struct {
	growth *schema.Growth // nil if there is no field
	late   bool           // true if the table has got a column for one since its row was built
}

func observe(table *schema.Schema, pieces []connector.Piece) (o observed, err error) {
	var of arrow.RecordBatch
	var texts texts
	old := false // of is of rows that were built for an older schema
	for _, p := range pieces {
		if p.Rows != of {
			of, texts = p.Rows, rescuedIn(p.Rows)
			old = texts != nil && !covers(of.Schema().Fields(), table.Written().Arrow().Fields())
		}
		for row := p.From; texts != nil && row < p.To; row++ {
			text := texts(int(row))
			if text == nil {
				continue
			}
			if o.growth == nil {
				o.growth = schema.NewGrowth(table)
			}
			err := schema.RescuedFields(text, func(path string, value []byte) error {
				known, err := o.growth.Observe(path, value, old)
				o.late = o.late || known && old
				return err
			})
			if err != nil {
				return o, fmt.Errorf("row %d: %w", row, err)
			}
		}
	}
	return o, nil
}

// covers reports whether rows have each of the wanted columns and fields.
func covers(rows, want []arrow.Field) bool {
	byName := make(map[string]arrow.DataType, len(rows))
	for _, f := range rows {
		byName[f.Name] = f.Type
	}
	for _, w := range want {
		has, ok := byName[w.Name]
		if !ok {
			return false
		}
		for is[*arrow.ListType](has) && is[*arrow.ListType](w.Type) {
			has, w.Type = has.(*arrow.ListType).Elem(), w.Type.(*arrow.ListType).Elem()
		}
		a, ok := has.(*arrow.StructType)
		if b, both := w.Type.(*arrow.StructType); ok && both && !covers(a.Fields(), b.Fields()) {
			return false
		}
	}
	return true
}

func is[T arrow.DataType](t arrow.DataType) bool {
	_, ok := t.(T)
	return ok
}

// texts returns the text of a row in the column for rescued fields, nil for null. It is valid as long as the rows.
type texts func(row int) []byte

// rescuedIn returns the texts of a record batch, nil if it has none at all.
func rescuedIn(rows arrow.RecordBatch) texts {
	at := rows.Schema().FieldIndices(schema.Rescued)
	if len(at) != 1 || rows.Column(at[0]).NullN() == rows.Column(at[0]).Len() {
		return nil
	}
	switch a := rows.Column(at[0]).(type) {
	case *array.String:
		return textsOf(a, a, func(row int) int { return row })
	case *array.Dictionary:
		if values, ok := a.Dictionary().(*array.String); ok {
			return textsOf(a, values, a.GetValueIndex)
		}
	}
	return nil
}

// textsOf returns the texts of an array without copies; index says which of values a row has.
func textsOf(a arrow.Array, values *array.String, index func(row int) int) texts {
	offsets, data := values.ValueOffsets(), values.ValueBytes()
	return func(row int) []byte {
		if a.IsNull(row) {
			return nil
		}
		i := index(row)
		return data[offsets[i]-offsets[0] : offsets[i+1]-offsets[0]]
	}
}

// fitter moves rescued fields to the columns that the schema to has and the rows lack. It is safe for concurrent use.
type fitter struct {
	limits JSON
	to     *schema.Schema
}

// leaves reports whether any field stays in the column for rescued fields.
func (f *fitter) leaves(fit bool, pieces []connector.Piece) (bool, error) {
	var done arrow.RecordBatch
	for _, p := range pieces {
		if p.Rows == done || rescuedIn(p.Rows) == nil {
			continue
		}
		done = p.Rows
		if !fit {
			return true, nil
		}
		rows, err := f.fit(p.Rows)
		if err != nil {
			return false, err
		}
		rest := rescuedIn(rows) != nil
		rows.Release()
		if rest {
			return true, nil
		}
	}
	return false, nil
}

// fit implements [connector.Snapshot.Fit]. A value that does not fit its column stays where it is.
func (f *fitter) fit(rows arrow.RecordBatch) (arrow.RecordBatch, error) {
	texts := rescuedIn(rows)
	if texts == nil {
		rows.Retain()
		return rows, nil
	}
	d, err := f.decoder()
	if err != nil {
		return nil, err
	}
	root, err := d.patchOf(f.to.Written().Fields(), rows.Schema().Fields(), rows.Columns(), nil, "", 1)
	if err != nil {
		return nil, err
	}
	for row := range int(rows.NumRows()) {
		if text := texts(row); text != nil {
			if err := d.fitRow(root, text, row); err != nil {
				return nil, fmt.Errorf("row %d: %w", row, err)
			}
		}
	}
	return root.batch(d.rescue.column, rows), nil
}

// decoder returns a decoder without columns, except that for the fields that stay.
func (f *fitter) decoder() (*jsonDecoder, error) {
	limits := f.limits
	limits.Declared = nil // the record was accepted, so from now on each value that does not fit stays
	limits.Spare = nil    // the rows live only while they are encoded
	d := limits.bare(maxDistinct)
	rescued := schema.Type{Kind: schema.String}
	c, err := d.newColumn(rescued, arrow.Field{Name: schema.Rescued, Type: arrow.BinaryTypes.String, Nullable: true}, nil, nil, schema.Rescued, 1)
	if err != nil {
		return nil, err
	}
	c.reserve()
	d.rescue.column = c
	return d, nil
}

// patch is one level of the columns of a record batch: the record, or the object in a struct column, also within lists.
type patch struct {
	fields []arrow.Field // those that the rows have
	arrays []arrow.Array
	byName map[string]*target // by the name of the record's field
	added  []*target          // those that the rows lack, in the order of the schema
}

// target is a column of the schema. The rows lack it, or it has an object that may lack fields.
type target struct {
	added *column       // the new column, nil if the rows have it
	lists []*array.List // around the object, the outermost first
	below *patch        // the object
	at    int           // index in the arrays of the level
}

func (d *jsonDecoder) patchOf(want []schema.Field, fields []arrow.Field, arrays []arrow.Array, names []string, path string, depth int) (*patch, error) {
	p := &patch{fields: slices.Clone(fields), arrays: slices.Clone(arrays), byName: make(map[string]*target, len(want))}
	at := make(map[string]int, len(fields))
	for i, f := range fields {
		at[f.Name] = i
	}
	types := schema.ArrowFields(want)
	for i, w := range want {
		if depth == 1 && (schema.IsKafkaColumn(w.Name) || w.Name == schema.Rescued) {
			continue
		}
		have, ok := at[w.Name]
		if !ok {
			o, err := d.newObject(want[i:i+1], types[i:i+1], nil, names, path, depth)
			if err != nil {
				return nil, err
			}
			c := o.members[0].column
			c.reserve()
			c.locate(nil)
			s := &target{added: c}
			p.byName[w.Source()], p.added = s, append(p.added, s)
			continue
		}
		s := &target{at: have}
		t, a := w.Type, arrays[have]
		for t.Kind == schema.Array && is[*arrow.ListType](a.DataType()) {
			list := a.(*array.List)
			s.lists, t, a = append(s.lists, list), *t.Element, list.ListValues()
		}
		if object, ok := a.(*array.Struct); ok && t.Kind == schema.Struct {
			var below []arrow.Array
			for i := range object.NumField() {
				below = append(below, object.Field(i))
			}
			var err error
			s.below, err = d.patchOf(t.Fields, object.DataType().(*arrow.StructType).Fields(), below, append(slices.Clip(names), w.Name), path+"."+w.Name, depth+1+len(s.lists))
			if err != nil {
				return nil, err
			}
		}
		p.byName[w.Source()] = s
	}
	return p, nil
}

// fitRow moves the fields of the text of a row.
func (d *jsonDecoder) fitRow(root *patch, text []byte, row int) error {
	d.start(slices.Clip(text))
	d.limits.MaxBytes = 2*len(text) + 256 // the paths of fields in a new object may take more room than the object
	b := d.padded(d.record)
	for p := 0; b[p] != '}'; {
		p++ // the brace, or the comma
		name, value := d.name(b, p)
		if value < 0 {
			return d.refuse()
		}
		if value = d.fitField(root, b, p, value, string(name), row); value < 0 {
			return d.refuse()
		}
		p = value
	}
	d.rescue.put(row)
	return nil
}

// fitField moves a field to its column. The entry begins at p, and its value at value. It returns the end of the value.
func (d *jsonDecoder) fitField(root *patch, b []byte, p, value int, path string, row int) int {
	steps, err := schema.ParseRescuedPath(path)
	if err != nil {
		return d.fail(Syntax, p)
	}
	if c, at := root.find(steps, row); c != nil {
		d.rescue.prefix = append(d.rescue.prefix[:0], b[p+1:lastQuote(b, value)]...)
		end := d.value(c, b, value, at)
		if end >= 0 {
			return end
		}
		c.truncate(at)
		d.rescue.dropFrom(value)
		d.reason, d.path, d.failedIn = 0, d.path[:0], nil
	}
	d.values = 0 // the record was accepted with these values
	end := d.skip(b, value, 1)
	if end >= 0 {
		d.rescue.keepEntry(b[p:end], value)
	}
	return end
}

// lastQuote returns the position of the quote after a name, whose value begins at p.
func lastQuote(b []byte, p int) int {
	for p--; b[p] != '"'; p-- {
	}
	return p
}

// find returns the column that the rows lack for a path, and the row of that column. It is nil if there is none.
func (p *patch) find(steps []schema.RescuedStep, row int) (c *column, at int) {
	for {
		s := p.byName[steps[0].Name]
		switch {
		case s == nil:
			return nil, 0
		case len(steps) == 1:
			return s.added, row
		case s.below == nil, len(steps) <= 1+len(s.lists), steps[1+len(s.lists)].Index >= 0:
			return nil, 0
		}
		for i, list := range s.lists {
			from, to := list.ValueOffsets(row)
			element := int(from) + steps[1+i].Index
			if steps[1+i].Index < 0 || element >= int(to) {
				return nil, 0
			}
			row = element
		}
		steps, p = steps[1+len(s.lists):], s.below
	}
}

// batch returns the rows with the columns that have got values.
func (p *patch) batch(rescued *column, rows arrow.RecordBatch) arrow.RecordBatch {
	n := int(rows.NumRows())
	fields, arrays := p.finish(n)
	at := slices.IndexFunc(fields, func(f arrow.Field) bool { return f.Name == schema.Rescued })
	arrays[at].Release()
	if rescued.n == 0 {
		fields, arrays = slices.Delete(fields, at, at+1), slices.Delete(arrays, at, at+1)
	} else {
		f, data := rescued.finishField(n)
		fields[at], arrays[at] = f, array.MakeFromData(data)
		data.Release()
	}
	defer releaseArrays(arrays)
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, int64(n))
}

func releaseArrays(arrays []arrow.Array) {
	for _, a := range arrays {
		a.Release()
	}
}

// finish returns the arrays of the level, of n rows. The caller releases them.
func (p *patch) finish(n int) ([]arrow.Field, []arrow.Array) {
	for _, a := range p.arrays {
		a.Retain()
	}
	for _, s := range p.byName {
		if s.below == nil || !s.below.grows() {
			continue
		}
		inner := s.below.object(p.arrays[s.at], s.lists)
		p.arrays[s.at].Release()
		p.arrays[s.at], p.fields[s.at].Type = inner, inner.DataType()
	}
	for _, s := range p.added {
		if s.added.n == 0 {
			continue
		}
		f, data := s.added.finishField(n)
		p.fields, p.arrays = append(p.fields, f), append(p.arrays, array.MakeFromData(data))
		data.Release()
	}
	return p.fields, p.arrays
}

// grows reports whether a column at or below the level has got values.
func (p *patch) grows() bool {
	for _, s := range p.byName {
		if s.added != nil && s.added.n > 0 || s.below != nil && s.below.grows() {
			return true
		}
	}
	return false
}

// object returns the array around the level with the arrays of the level in it: a, which is a struct within lists.
func (p *patch) object(a arrow.Array, lists []*array.List) arrow.Array {
	if len(lists) > 0 {
		element := p.object(lists[0].ListValues(), lists[1:])
		defer element.Release()
		field := a.DataType().(*arrow.ListType).ElemField()
		field.Type = element.DataType()
		return like(a, arrow.ListOfField(field), element)
	}
	fields, arrays := p.finish(a.Len())
	defer releaseArrays(arrays)
	return like(a, arrow.StructOf(fields...), arrays...)
}

// like returns an array with the rows of a, but other children.
func like(a arrow.Array, t arrow.DataType, children ...arrow.Array) arrow.Array {
	data := make([]arrow.ArrayData, len(children))
	for i, c := range children {
		data[i] = c.Data()
	}
	of := array.NewData(t, a.Len(), a.Data().Buffers(), data, a.NullN(), a.Data().Offset())
	defer of.Release()
	return array.MakeFromData(of)
}
