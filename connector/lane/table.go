package lane

import (
	"sluice/connector"
	"sluice/connector/plan"
)

// Table is the part of a table that lanes use. The reader, the lanes and the table's writer share it.
type Table struct {
	Decoder   connector.Decoder
	Nulls     bool // the decoder takes records without a value
	OpenBatch openBatch
	// Verdicts are the writer's findings about records that cannot become rows.
	Verdicts plan.Verdicts
}
