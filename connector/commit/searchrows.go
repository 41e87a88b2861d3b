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

// If a partition has neither a txn nor a committed offset, it may nevertheless have been read before. A table may drop
// txns if its properties say so, and Kafka deletes the offsets of a group that was inactive for a week. Rows in the
// table prove that it was read. The search does not depend on the properties of the table, because the property that
// dropped the txns may have been removed since.

// rowsFoundValid is how long the result of a search counts without a new search, because a search may take long and
// rows rarely disappear.
const rowsFoundValid = time.Hour

// rowsFound says in which table, and when, rows of a partition without a position were found.
type rowsFound struct {
	table string // the id of the table
	at    time.Time
}

// rejectWithRows prevents initial commits of partitions of which the table already has rows. For a new topic with rows,
// failures gets a hold of the whole topic. An added partition with rows is held alone, and removed from planned. If the
// search fails, failures gets its error for each topic that it had to search for.
func (r *resolver) rejectWithRows(ctx context.Context, planned map[string]*plan.Initial, failures map[string]error, holdOne func(connector.Partition, hold.Reason, string)) {
	search := map[connector.RowsOf]bool{}
	for _, i := range planned {
		if i == nil {
			continue
		}
		for p := range i.Positions {
			of := plan.BlockingRows(p, i.Added)
			if f, found := r.rows[of]; !found || f.table != r.snapshot.TableID || time.Since(f.at) >= rowsFoundValid {
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

// searchRows searches the table for rows of the given partitions or topics. It notes in r.rows which of them have rows.
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
