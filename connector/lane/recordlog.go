package lane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"

	"sluice/connector"
	"sluice/reliability"
)

// recordLines is how many records the log names per second at most.
const recordLines = 1000

// What became of a record, as its line in the log says.
const (
	recordIsRow          = "row"
	recordIsBad          = "bad_record"
	recordIsTombstone    = "tombstone"
	recordIsHealthRecord = "health_record"
)

// RecordLog logs records at DEBUG: coordinates, sizes and a hash of the key, never bytes of a record. All lanes share one.
type RecordLog struct {
	logger *slog.Logger
	lines  *reliability.Sparse
}

// NewRecordLog returns the log of all lanes.
func NewRecordLog(logger *slog.Logger) *RecordLog {
	return &RecordLog{logger, reliability.NewSparse(recordLines, time.Second)}
}

// enabled returns whether tell would log anything. Lanes ask once per block.
func (l *RecordLog) enabled(ctx context.Context) bool { return l.logger.Enabled(ctx, slog.LevelDebug) }

// log logs what became of a record.
func (l *RecordLog) log(ctx context.Context, p connector.Partition, r *connector.Record, became string) {
	left, ok := l.lines.Next()
	if !ok {
		return
	}
	key := ""
	if r.Key != nil {
		sum := sha256.Sum256(r.Key)
		key = hex.EncodeToString(sum[:8])
	}
	l.logger.DebugContext(ctx, "record", "topic", p.Topic, "partition", p.ID, "offset", r.Offset, "became", became,
		"key_bytes", len(r.Key), "value_bytes", len(r.Value), "headers", len(r.Headers), "key_sha256", key, "left_out", left)
}
