package schema

import "slices"

// Rescued is the column for fields of records that have no other column: a JSON object by path. Only tables of topics
// with unknown_fields: rescue have it.
const Rescued = "_rescued"

// WithRescued returns the schema with the column [Rescued] at its end, or s itself if it has a column of this name.
func (s *Schema) WithRescued() *Schema {
	if s.has(Rescued) {
		return s
	}
	return &Schema{append(slices.Clone(s.fields), kafkaColumn(Rescued, String, "fields of the record that have no column, by path")), s.partitions}
}

// CanRescue returns a hold.Error with hold.SchemaConflict unless the table has the column [Rescued] as a string.
func (s *Schema) CanRescue() error {
	i := slices.IndexFunc(s.fields, func(f Field) bool { return f.Name == Rescued })
	switch {
	case i < 0:
		return conflict("the table has no column %s; add it with ALTER TABLE … ADD COLUMNS (%s string), or change unknown_fields", Rescued, Rescued)
	case s.fields[i].Type.Kind != String || !s.fields[i].Nullable:
		return conflict("column %s is %s and must be a nullable string: change unknown_fields, or let another table be created", Rescued, s.fields[i].Type)
	}
	return nil
}
