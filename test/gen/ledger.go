package gen

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
)

// Ledger is a file with one line for each committed record: topic, partition, offset and hash of the row. A record
// enters when the broker has acknowledged it, or has committed its transaction. All methods are safe for concurrent
// use.
type Ledger struct {
	Path string

	mu      sync.Mutex
	file    *os.File
	out     *bufio.Writer
	entries int64
	ends    map[int32]int64 // offset after the last entry of each partition
	left    map[int32]bool  // partitions whose records no longer enter the ledger
	err     error
}

// Entry is one line of a ledger.
type Entry struct {
	Coordinates
	Hash string
}

// NewLedger creates the file. The caller must call Close.
func NewLedger(path string) (*Ledger, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create ledger: %w", err)
	}
	l := &Ledger{Path: path, file: file, out: bufio.NewWriter(file), ends: make(map[int32]int64), left: make(map[int32]bool)}
	_, l.err = l.out.WriteString("topic,partition,offset,hash\n")
	return l, nil
}

// Add appends entries. It ignores entries of partitions for which Leave was called. If writing fails, Flush and Close
// return the error.
func (l *Ledger) Add(entries ...Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range entries {
		if l.left[e.Partition] {
			continue
		}
		if _, err := fmt.Fprintf(l.out, "%s,%d,%d,%s\n", e.Topic, e.Partition, e.Offset, e.Hash); err != nil {
			l.err = errors.Join(l.err, err)
			return
		}
		l.entries++
		l.ends[e.Partition] = max(l.ends[e.Partition], e.Offset+1)
	}
}

// Leave makes later calls of Add ignore one partition: its records are not expected in the table any more.
func (l *Ledger) Leave(partition int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left[partition] = true
}

// Len returns the number of entries so far.
func (l *Ledger) Len() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries
}

// Ends returns, for each partition, the offset after its last entry.
func (l *Ledger) Ends() map[int32]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.ends)
}

// Flush writes buffered entries to the file.
func (l *Ledger) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.err, l.out.Flush()); err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	return nil
}

// Close writes buffered entries and closes the file.
func (l *Ledger) Close() error {
	return errors.Join(l.Flush(), l.file.Close())
}
