package lettercount

// Slices is how many slices the dead-letter log is kept in.
func (t *Tally) Slices() (n int) {
	for _, d := range t.dead {
		n += len(d.slices)
	}
	return n
}
