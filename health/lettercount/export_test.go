package lettercount

// Slices returns the number of slices that the tally has.
func (t *Tally) Slices() (n int) {
	for _, d := range t.dead {
		n += len(d.slices)
	}
	return n
}
