package decode

import (
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
)

// The names of two formats that other packages use: the default, and that of dead letters.
const (
	FormatJSON        = "json"
	FormatDeadLetters = "dead_letter"
)

// Options are the settings of a topic that concern its decoder. A format uses those that apply to it.
type Options struct {
	Strict bool // an unknown field refuses the record
	Rescue bool // unknown fields are kept in the column schema.Rescued
	// NewColumns bounds the columns that are made of unknown fields; nil makes none. Declared are the columns of the
	// configuration, nil if it has none.
	NewColumns *schema.NewColumns
	Declared   *schema.Schema
	Columns    ColumnOptions
	Identity   idempotency.Identity
	Spare      Spare // lends the buffers of columns; nil for Go's memory
}

// A Format is a format of records, by the name that the configuration key `format` has.
type Format struct {
	Name string
	New  func(Options) connector.Decoder
}

// Formats returns all formats, the default first. A new format is a file with its decoder, a line here and samples in
// TestFormats, which runs decodetest.Run on each format. The configuration takes the names from here.
func Formats() []Format {
	return []Format{
		{FormatJSON, func(o Options) connector.Decoder {
			return JSON{Strict: o.Strict, Rescue: o.Rescue, NewColumns: o.NewColumns, Declared: o.Declared, Columns: o.Columns, Identity: o.Identity, Spare: o.Spare}
		}},
		{FormatDeadLetters, func(Options) connector.Decoder { return DeadLetters{} }},
	}
}
