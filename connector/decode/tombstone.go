package decode

// tombstone makes a row of a record whose value is null: all columns of the value are null. It returns false, after a
// call of fail, if one of them is NOT NULL.
func (d *jsonDecoder) tombstone() bool {
	clear(d.root.seen)
	return d.complete(d.root, 0) >= 0
}
