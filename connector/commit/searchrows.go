package commit

import (
	"context"
	"maps"
	"slices"
	"time"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/reliability/hold"
)

// No txn and no committed offset are no proof of a first start: a table drops txns if it is told to, and Kafka drops the
// offsets of a group that is gone for a week. The rows of the table show it then. They are looked at whatever properties
// the table has: one that dropped txns may have been unset since, and no version that is left would tell.

// rowsStay is how long the finding that there are rows and no position stands before the table is searched again: that
// may take a while, and rows seldom go.
const rowsStay = time.Hour

// rowsFound is such a finding.
type rowsFound struct {
	table string // its id
	at    time.Time
}

// withoutRows takes first positions away whose rows are in the table already: those of a topic as a whole, which failures
// tells then, or those of partitions that were added to it, which are held. One search answers for all. If it fails,
// failures tells so for each topic that it was about.
func (r *resolver) withoutRows(ctx context.Context, planned map[string]*plan.Initial, failures map[string]error, holdOne func(connector.Partition, hold.Reason, string)) {
	search := map[connector.RowsOf]bool{}
	for _, i := range planned {
		if i == nil {
			continue
		}
		for p := range i.Positions {
			of := plan.BlockingRows(p, i.Added)
			if f, found := r.rows[of]; !found || f.table != r.snapshot.TableID || time.Since(f.at) >= rowsStay {
				delete(r.rows, of)
				search[of] = true
			}
		}
	}
	var err error
	if len(search) > 0 {
		err = r.searchRows(ctx, slices.SortedFunc(maps.Keys(search), plan.CompareRows))
	}
	for name, i := range planned {
		if i == nil {
			continue
		}
		for p := range i.Positions {
			of := plan.BlockingRows(p, i.Added)
			_, found := r.rows[of]
			switch {
			case err != nil && search[of]:
				failures[name] = err
			case found && i.Added:
				holdOne(p, hold.UnknownHistory, plan.RowsDetail(of))
				delete(i.Positions, p)
			case found:
				failures[name] = hold.New(hold.UnknownHistory, plan.RowsDetail(of), nil)
			}
		}
	}
}

// searchRows looks for rows in the table, and keeps what it found.
func (r *resolver) searchRows(ctx context.Context, of []connector.RowsOf) error {
	found, err := r.table.HasRows(ctx, r.snapshot, of, !plan.Follows(r.snapshot, r.pipeline))
	if err != nil {
		return err
	}
	for of, has := range found {
		if has {
			r.rows[of] = rowsFound{r.snapshot.TableID, time.Now()}
		}
	}
	return nil
}
