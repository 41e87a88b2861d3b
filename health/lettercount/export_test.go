package lettercount

// Slices returns the number of slices that the tally has.
func (t *Tally) Slices() (n int) {
	for _, d := range t.dead {
		n += len(d.slices)
	}
	return n
}

// Bytes returns the estimated memory of the letters.
func (t *Tally) Bytes() int64 { return t.bytes }
