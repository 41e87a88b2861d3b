package delta

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/sink/delta/deltalog"
)

// A table may have delta.setTransactionRetentionDuration: whoever writes its checkpoints drops the txns that nothing has
// set for so long, and with them the knowledge of what is in the table. So the pipeline's txns, its mark and the positions
// of idle partitions among them, are repeated in time. A commit repeats the txns of exactly the prefix that it extends,
// which is why it cannot move a position, whoever owns it.

const (
	propTxnRetention = "delta.setTransactionRetentionDuration"
	// A txn is repeated when a fifth of the retention has passed since it was set, so within a quarter of it. All that are
	// older than a tenth are then repeated with it.
	dueAfter, alongAfter = 5, 10

	operationKeep = "SLUICE KEEP"
)

// txnRetention returns how long a txn stays in the table that nothing sets again. It is false if txns stay for ever.
func txnRetention(m deltalog.Metadata) (time.Duration, bool) {
	text, ok := m.Configuration[propTxnRetention]
	if !ok {
		return 0, false
	}
	d, err := deltalog.ParseInterval(text)
	return d, err == nil
}

// retained refuses a table that drops positions before Kafka drops the records that come after them.
func (t *Table) retained() error {
	kept, expire := txnRetention(t.head.Metadata)
	if !expire || t.opt.Retention == nil {
		return nil
	}
	switch needed := t.opt.Retention(); {
	case kept >= needed:
		return nil
	case needed == math.MaxInt64:
		return unsupported("it has %s = %q, but Kafka keeps the records of its topics for ever; unset it", propTxnRetention, t.head.Metadata.Configuration[propTxnRetention])
	default:
		return unsupported("it has %s = %q, but Kafka keeps the records of its topics for %v; unset it, or set at least that",
			propTxnRetention, t.head.Metadata.Configuration[propTxnRetention], needed)
	}
}

// aging returns the pipeline's txns that the commit after head must repeat, as they are, nil if it is too early.
func (t *Table) aging(now time.Time) (all []connector.Txn) {
	kept, expire := txnRetention(t.head.Metadata)
	if !expire || t.opt.Retention == nil {
		return nil
	}
	due := false
	for _, appID := range slices.Sorted(maps.Keys(t.head.Txns)) {
		if !idempotency.OfPipeline(appID, t.opt.Pipeline) {
			continue
		}
		txn, age := t.head.Txns[appID], time.Duration(math.MaxInt64) // one that says no time is dropped at once
		if position, beside := idempotency.EpochOf(appID); beside && !sameTime(txn, t.head.Txns[position]) {
			continue // it belongs to a position before; repeated with the one of now it would belong to that
		}
		if txn.LastUpdated != nil {
			age = now.Sub(time.UnixMilli(*txn.LastUpdated))
		}
		due = due || age > kept/dueAfter
		if age > kept/alongAfter {
			all = append(all, connector.Txn{AppID: appID, Version: txn.Version})
		}
	}
	if !due {
		return nil
	}
	return all
}

// withAging returns the txns of a commit and those that must be repeated beside them.
func (t *Table) withAging(txns []connector.Txn, now time.Time) []connector.Txn {
	all := slices.Clone(txns)
	for _, x := range t.aging(now) {
		if !slices.ContainsFunc(txns, func(set connector.Txn) bool { return set.AppID == x.AppID }) {
			all = append(all, x)
		}
	}
	return all
}

// keep repeats txns that are due in a commit of their own: the table may be idle as a whole.
func (t *Table) keep(ctx context.Context) error {
	n := len(t.aging(time.Now()))
	if n == 0 {
		return nil
	}
	kept := errors.New("another member has repeated them")
	s, err := t.Commit(ctx, &connector.Commit{Operation: operationKeep}, func(*connector.Snapshot) error {
		if n = len(t.aging(time.Now())); n == 0 {
			return kept
		}
		return nil
	})
	switch {
	case errors.Is(err, kept):
		return nil
	case err != nil:
		return err
	}
	t.log.InfoContext(ctx, "repeated the txns of idle partitions before the table drops them", "txns", n, "version", s.Version)
	return nil
}
