package lookup

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/sink/delta/scan"
)

// WholeRows reads whole rows of a table, as [sluice/sink/delta.WholeRows] does.
type WholeRows func(where []scan.Where, columns []string, each func(arrow.RecordBatch) error) error

// StoredLetters calls each with the dead letters of [from, next) of a partition of a dead-letter topic that the letter
// table has, in the order of the table's files. It leaves out those of a deleted dead-letter topic of this name. Without
// content, the dead letters lack key, value, headers and stack trace. An error of each ends the read and is returned
// unchanged.
func StoredLetters(table WholeRows, p connector.Partition, from, next int64, content bool, each func(*decode.StoredLetter) error) error {
	columns, err := decode.LetterColumns(content)
	if err != nil {
		return fmt.Errorf("columns of dead letters: %w", err)
	}
	want := func(topic string, partition int32, offset int64) bool {
		return topic == p.Topic && partition == p.ID && offset >= from && offset < next
	}
	where := []scan.Where{{Topic: p.Topic, Partition: p.ID, From: from, Next: next}}
	return table(where, columns, func(rows arrow.RecordBatch) error {
		found, err := decode.ReadLetters(rows, want)
		if err != nil {
			return fmt.Errorf("parse dead letters: %w", err)
		}
		for i := range found {
			if l := &found[i]; l.TopicID == "" || l.TopicID == p.TopicID.String() { // else the dead-letter topic was created again
				if err := each(l); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
