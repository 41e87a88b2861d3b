package deltalog

import (
	"bytes"
	"fmt"
	"sync/atomic"
)

// What others write into the log is bounded. What exceeds a bound is [ErrCorrupt], with the name of the object and the bound;
// only the hint is passed over, because a longer list says the same.
const (
	// maxHint bounds _last_checkpoint. Delta's own has some hundred bytes, and some KiB with a schema in it.
	maxHint = 64 << 10
	// maxLine bounds one action of a commit. A metaData of a thousand columns is far below it.
	maxLine = 8 << 20
	// maxParsed bounds what one line may take once it is parsed: see cost.
	maxParsed = 32 << 20
	// maxHeads bounds the positions and metadata of one commit, and maxTogether those of the commits that are read side by
	// side, with the lines that are being parsed. Ten thousand partitions take about 8 MiB.
	maxHeads    = 16 << 20
	maxTogether = 64 << 20
	// maxState bounds the positions and metadata of a table: those of some ten thousand partitions are below it.
	maxState = 64 << 20
	// checkpointBytes bounds what is held of one file of a checkpoint at a time.
	checkpointBytes = 64 << 20
)

// perField is about what a field of a JSON object takes in memory beside its bytes: a string header, a place in a map.
const perField = 64

// cost is about what a line takes in memory once it is parsed. Commas inside of texts count as well, which errs on the side
// of more.
func cost(line []byte) int64 {
	return int64(len(line)) + perField*int64(bytes.Count(line, []byte{','}))
}

// errTogether says that commits which are read side by side take more than they may together. Each alone may pass.
var errTogether = fmt.Errorf("%w: it takes more than %d bytes to read", ErrCorrupt, int64(maxTogether))

// budget is what the commits that are read side by side may hold together.
type budget struct {
	used atomic.Int64
	peak atomic.Int64
}

// take counts n bytes more, or less if n is negative.
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

// keeper counts what one commit keeps of the lines that were parsed.
type keeper struct {
	budget *budget
	alone  bool // no other commit is read meanwhile: its data files are the caller's to bound
	heads  int64
	kept   int64 // taken from the budget and not given back
}

// hold takes what an action costs from the budget until the commit is given up.
func (k *keeper) hold(n int64) error {
	err := k.budget.take(n)
	if err == nil {
		k.kept += n
	}
	return err
}

// giveUp gives back what the commit holds: it is not used.
func (k *keeper) giveUp() {
	_ = k.budget.take(-k.kept) // giving back cannot fail
	k.kept = 0
}

// keep counts an action whose line cost n bytes.
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

// line is a line that was read, with what its parsing costs taken from a budget.
func (k *keeper) line(text []byte, want Kinds) ([]Action, error) {
	n := cost(text)
	if n > maxParsed {
		return nil, corrupt("a line that takes more than %d bytes once it is parsed", int64(maxParsed))
	}
	if err := k.budget.take(n); err != nil {
		return nil, err
	}
	defer func() { _ = k.budget.take(-n) }() // giving back cannot fail
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
