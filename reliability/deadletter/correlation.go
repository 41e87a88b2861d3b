package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"sluice/idempotency"
)

// Correlation is the id under which the log speaks of a record: 16 hexadecimal digits made of its coordinates, so that
// each member that reads the record, also again, derives the same id.
func Correlation(c idempotency.Coordinates) string {
	h := sha256.New()
	for _, part := range []string{c.Cluster, c.Topic, c.TopicID.String(), strconv.Itoa(int(c.ID)), strconv.FormatInt(c.Offset, 10)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
