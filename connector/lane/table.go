package lane

import (
	"sluice/connector"
	"sluice/connector/plan"
)

// Table is the part of a table that lanes use. The reader, the lanes and the table's writer share it.
type Table struct {
	Decoder   connector.Decoder
	Nulls     bool // true if the decoder takes records without a value
	OpenBatch openBatch
	// Verdicts has the records that the writer has found to fail, and the records that lanes must test one by one.
	Verdicts plan.Verdicts
}
