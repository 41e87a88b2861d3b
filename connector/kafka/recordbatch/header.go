//nolint:gosec // G115: the integers of a record batch have fixed widths, and are checked before they are used
package recordbatch

import "fmt"

// header is the fixed part of a record batch.
type header struct {
	base, last int64
	size       int // the size of the batch, including the header
	epoch      int32
	crc        uint32
	attrs      uint16
	firstTime  int64
	maxTime    int64
	producer   int64
	count      int
}

// i32 returns the 32-bit integer at the start of b.
func i32(b []byte) int { return int(int32(be.Uint32(b))) }

// parseHeader parses the header at the start of raw, which has more than 16 bytes. If the batch ends beyond raw, only
// the field size is set. Errors name the offset next, because a bad header may have a wrong offset.
func parseHeader(raw []byte, next int64) (header, error) {
	// The magic byte has the same place in all formats, but in the old formats the length means something else. Without
	// this check, a short message of an old format would always look like a batch whose end is missing.
	switch magic := raw[16]; {
	case magic < 2:
		return header{}, corrupt(next, fmt.Sprintf("message format v%d is older than Kafka 0.11 and not supported; "+
			"copy the topic with a current client", magic), nil)
	case magic > 2:
		return header{}, corrupt(next, fmt.Sprintf("unknown message format v%d", magic), nil)
	}
	h := header{size: i32(raw[8:]) + 12}
	if h.size < headerLen {
		return header{}, corrupt(next, fmt.Sprintf("a length of %d bytes", h.size), nil)
	}
	if h.size > len(raw) {
		return h, nil
	}
	h.base = int64(be.Uint64(raw))
	h.epoch = int32(be.Uint32(raw[12:]))
	h.crc = be.Uint32(raw[17:])
	h.attrs = be.Uint16(raw[crcFrom:])
	delta := int64(i32(raw[23:]))
	h.last = h.base + delta
	h.firstTime = int64(be.Uint64(raw[27:]))
	h.maxTime = int64(be.Uint64(raw[35:]))
	h.producer = int64(be.Uint64(raw[43:]))
	h.count = i32(raw[57:])
	if h.base < 0 || delta < 0 || h.last < h.base || h.last == 1<<63-1 || h.count < 0 {
		return header{}, corrupt(next, fmt.Sprintf("base offset %d, last offset delta %d, %d records", h.base, delta, h.count), nil)
	}
	return h, nil
}

// time returns the timestamp of all records if the broker has set it. Otherwise it returns the timestamp to which the
// timestamps of the records are relative.
func (h *header) time() int64 {
	if h.attrs&attrLogTime != 0 {
		return h.maxTime
	}
	return h.firstTime
}
