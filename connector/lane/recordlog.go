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

// recordsPerSecond is how many records are logged per second at most.
const recordsPerSecond = 1000

// The values of the log attribute "became": what became of a record.
const (
	recordIsRow          = "row"
	recordIsBad          = "bad_record"
	recordIsTombstone    = "tombstone"
	recordIsHealthRecord = "health_record"
)

// RecordLog logs single records at DEBUG: coordinates, sizes and a hash of the key, never bytes of a record. All
// lanes share it.
type RecordLog struct {
	logger *slog.Logger
	lines  *reliability.Sparse
}

// NewRecordLog returns the record log for all lanes.
func NewRecordLog(logger *slog.Logger) *RecordLog {
	return &RecordLog{logger, reliability.NewSparse(recordsPerSecond, time.Second)}
}

// enabled reports whether the logger writes DEBUG lines. Lanes ask once for each block.
func (l *RecordLog) enabled(ctx context.Context) bool { return l.logger.Enabled(ctx, slog.LevelDebug) }

// log writes a line about what became of a record. After recordsPerSecond lines it writes none until the second is
// over.
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
