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
	"sluice/sink/delta/properties"
)

// A table may set delta.setTransactionRetentionDuration. Every writer of a checkpoint then drops txns that were not
// updated for that long, and the pipeline's positions with them. So the pipeline repeats its txns in time: the one that
// marks the table as started by the pipeline, and the positions of idle partitions. A commit repeats the txns exactly
// as they are in the prefix that it extends, so it cannot move a position, even one that belongs to another member.

const (
	propTxnRetention = "delta.setTransactionRetentionDuration"
	// A txn is due for repetition after a fifth of the retention. All txns older than a tenth are then repeated in
	// the same commit.
	dueAfter, alongAfter = 5, 10

	operationKeep = "SLUICE KEEP"
)

// txnRetention returns how long a table keeps a txn that is not updated; ok is false if the property is missing, so
// that the table keeps txns for ever, or cannot be parsed.
func txnRetention(m deltalog.Metadata) (time.Duration, bool) {
	text, ok := m.Configuration[propTxnRetention]
	if !ok {
		return 0, false
	}
	d, err := properties.ParseInterval(text)
	return d, err == nil
}

// retained returns nil if the table keeps txns at least as long as Kafka keeps the records of its topics, or if one of
// these times is not known. Otherwise it returns a hold.Error with hold.TableUnsupported.
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

// dueTxns returns the pipeline's txns that the next commit must repeat unchanged, nil if none is due.
func (t *Table) dueTxns(now time.Time) (all []connector.Txn) {
	kept, expire := txnRetention(t.head.Metadata)
	if !expire || t.opt.Retention == nil {
		return nil
	}
	due := false
	for _, appID := range slices.Sorted(maps.Keys(t.head.Txns)) {
		if !idempotency.OfPipeline(appID, t.opt.Pipeline) {
			continue
		}
		txn, age := t.head.Txns[appID], time.Duration(math.MaxInt64) // stays this large for a txn without a time: the next checkpoint may drop that txn
		if position, beside := idempotency.EpochOf(appID); beside && !sameTime(txn, t.head.Txns[position]) {
			// This leader epoch belongs to an earlier position; a new time would make it look like that of the current
			// position.
			continue
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

// withDueTxns returns txns, those that a commit sets, together with those that it must repeat.
func (t *Table) withDueTxns(txns []connector.Txn, now time.Time) []connector.Txn {
	all := slices.Clone(txns)
	for _, x := range t.dueTxns(now) {
		if !slices.ContainsFunc(txns, func(set connector.Txn) bool { return set.AppID == x.AppID }) {
			all = append(all, x)
		}
	}
	return all
}

// keep repeats due txns in a commit of their own, for a table without new rows.
func (t *Table) keep(ctx context.Context) error {
	n := len(t.dueTxns(time.Now()))
	if n == 0 {
		return nil
	}
	kept := errors.New("another member has repeated them")
	s, err := t.Commit(ctx, &connector.Commit{Operation: operationKeep}, func(*connector.Snapshot) error {
		if n = len(t.dueTxns(time.Now())); n == 0 {
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
