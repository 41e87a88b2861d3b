package lettercount

// Slices returns the number of slices.
func (t *Tally) Slices() (n int) {
	for _, d := range t.dead {
		n += len(d.slices)
	}
	return n
}
