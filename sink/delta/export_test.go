package delta

import (
	"context"
	"time"

	"sluice/sink/delta/deltalog"
)

// AfterLoss waits as a writer does after the n-th conflict in a row (counted from 0), if each of its puts takes the
// time took.
func AfterLoss(ctx context.Context, n int, took time.Duration) error {
	t := turn{putDuration: took}
	return t.afterLoss(ctx, n)
}

// Supported returns why this version of Sluice must not write a table, or nil if it may.
func Supported(p deltalog.Protocol, m deltalog.Metadata) error {
	_, err := supported(&deltalog.State{Protocol: p, Metadata: m})
	return err
}
