package deltalog

import (
	"bytes"
	"fmt"
	"sync/atomic"
)

// Bounds for the content of a log, which other writers may have written. Content beyond a bound is [ErrCorrupt], and
// the error names the bound. Only a hint beyond its bound is ignored, because the reader can list the whole log
// instead.
const (
	// maxHint bounds _last_checkpoint. Delta's own has some hundred bytes, and some KiB with a schema in it.
	maxHint = 64 << 10
	// maxLine bounds one action of a commit. A metaData of a thousand columns is far below it.
	maxLine = 8 << 20
	// maxParsed bounds the memory of one parsed line, as estimated by the function cost.
	maxParsed = 32 << 20
	// maxHeads bounds the positions and metadata of one commit. maxTogether bounds those of all commits that are read
	// in parallel, plus the lines being parsed. Ten thousand partitions take about 8 MiB.
	maxHeads    = 16 << 20
	maxTogether = 64 << 20
	// maxState bounds the positions and metadata of a table. Those of some ten thousand partitions are below it.
	maxState = 64 << 20
	// checkpointBytes bounds the memory for one file of a checkpoint.
	checkpointBytes = 64 << 20
)

// perField estimates the memory of a field of a JSON object beside its bytes: a string header and a place in a map.
const perField = 64

// cost estimates the memory of a line once it is parsed. Commas inside of texts count, too, so it may be too high.
func cost(line []byte) int64 {
	return int64(len(line)) + perField*int64(bytes.Count(line, []byte{','}))
}

// errTogether is the error for a commit that exceeds the budget together with the commits that are read at the same
// time. The commit is then read again alone, because alone it may be within the bound.
var errTogether = fmt.Errorf("%w: it takes more than %d bytes to read", ErrCorrupt, int64(maxTogether))

// budget counts the memory of commits that are read in parallel. Its limit is maxTogether.
type budget struct {
	used atomic.Int64
	peak atomic.Int64
}

// take reserves n bytes. It reserves nothing and returns errTogether if they exceed the limit. A negative n gives bytes
// back.
func (b *budget) take(n int64) error {
	used := b.used.Add(n)
	if n > 0 && used > maxTogether {
		b.used.Add(-n)
		return errTogether
	}
	for peak := b.peak.Load(); used > peak && !b.peak.CompareAndSwap(peak, used); peak = b.peak.Load() {
	}
	return nil
}

// keeper counts the memory of the parsed lines of one commit.
type keeper struct {
	budget *budget
	alone  bool  // no other commit is read in parallel; adds and removes then do not count
	heads  int64 // cost of the actions of the commit other than adds and removes
	kept   int64 // bytes reserved from the budget and not returned yet
}

// hold reserves n bytes of the budget, until giveUp gives them back. Without giveUp they stay reserved as long as the
// budget is in use.
func (k *keeper) hold(n int64) error {
	err := k.budget.take(n)
	if err == nil {
		k.kept += n
	}
	return err
}

// giveUp gives back what was reserved for a commit that is not used.
func (k *keeper) giveUp() {
	_ = k.budget.take(-k.kept) // cannot fail: a negative number returns bytes
	k.kept = 0
}

// keep reserves n bytes for an action, and returns [ErrCorrupt] if the positions and metadata of the commit exceed
// maxHeads. It reserves nothing for an add or remove of a commit that is read alone.
func (k *keeper) keep(a Action, n int64) error {
	if a.kind()&(KindAdd|KindRemove) != 0 {
		if k.alone {
			return nil
		}
		return k.hold(n)
	}
	if k.heads += n; k.heads > maxHeads {
		return corrupt("its positions and metadata take more than %d bytes", int64(maxHeads))
	}
	return k.hold(n)
}

// line parses one line and calls keep for each of its actions. While it parses, it also reserves the cost of the line
// itself. A line whose cost exceeds maxParsed is [ErrCorrupt].
func (k *keeper) line(text []byte, want Kinds) ([]Action, error) {
	n := cost(text)
	if n > maxParsed {
		return nil, corrupt("a line that takes more than %d bytes once it is parsed", int64(maxParsed))
	}
	if err := k.budget.take(n); err != nil {
		return nil, err
	}
	defer func() { _ = k.budget.take(-n) }() // cannot fail: a negative number returns bytes
	actions, err := parseLine(text, want)
	if err != nil {
		return nil, err
	}
	for _, a := range actions {
		if err := k.keep(a, n); err != nil {
			return nil, err
		}
	}
	return actions, nil
}
