package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"sluice/idempotency"
)

// Correlation returns the id of a record in log lines: 16 hexadecimal digits computed from its coordinates. So every
// member has the same id for the record, at each reading.
func Correlation(c idempotency.Coordinates) string {
	h := sha256.New()
	for _, part := range []string{c.Cluster, c.Topic, c.TopicID.String(), strconv.Itoa(int(c.ID)), strconv.FormatInt(c.Offset, 10)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
