package lane

import (
	"sluice/connector"
	"sluice/connector/plan"
)

// Table is a table as lanes know it. Reader, lanes and the table's writer share it.
type Table struct {
	Decoder   connector.Decoder
	Nulls     bool // the decoder takes records without a value
	OpenBatch openBatch
	// Verdicts are records that cannot become rows, as the writer found.
	Verdicts plan.Verdicts
}
