package lane

import (
	"sluice/connector"
	"sluice/connector/plan"
)

// Table is what lanes need to know about a table. The reader, the lanes and the table's writer share it.
type Table struct {
	Decoder   connector.Decoder
	OpenBatch openBatch
	// Verdicts has what the writer has found out about bad records, and which records lanes must test one by one.
	Verdicts plan.Verdicts
}
