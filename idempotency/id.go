package idempotency

import (
	"bytes"
	"unicode/utf8"
)

// MaxIDBytes is the largest length of an id in a store. A longer id is not stored: see [IsID].
const MaxIDBytes = 200

// IsID reports whether a store can keep a value as the id of an [Entry]: 1 to [MaxIDBytes] bytes of UTF-8 without NUL,
// which PostgreSQL cannot store in a text.
func IsID(v []byte) bool {
	return len(v) > 0 && len(v) <= MaxIDBytes && utf8.Valid(v) && bytes.IndexByte(v, 0) < 0
}

// IDs collects the ids of the rows of one chunk in one piece of memory. The zero value is empty. It belongs to one
// goroutine.
type IDs struct {
	text []byte
	ends []int
}

// Add appends the id of the next row. If [IsID] rejects the value, the row has no id.
func (i *IDs) Add(v []byte) {
	if IsID(v) {
		i.text = append(i.text, v...)
	}
	i.ends = append(i.ends, len(i.text))
}

// Allocated returns the memory that the IDs take, in bytes.
func (i *IDs) Allocated() int64 { return int64(cap(i.text)) + 8*int64(cap(i.ends)) }

// MoveTo sets the ids of entries, one for each row that was added, and empties i for the next chunk.
func (i *IDs) MoveTo(entries []Entry) {
	const usual = 64 << 10
	text, from := string(i.text), 0
	for row, to := range i.ends {
		entries[row].ID = text[from:to]
		from = to
	}
	i.text, i.ends = i.text[:0], i.ends[:0]
	if i.Allocated() > usual {
		*i = IDs{}
	}
}

// IDBytes returns the memory that the ids of entries take, in bytes.
func IDBytes(entries []Entry) (n int64) {
	for i := range entries {
		n += int64(len(entries[i].ID))
	}
	return n
}
