package decode

import (
	"slices"

	"sluice/connector"
)

// ignoredFields counts the undeclared fields of accepted records and keeps their names. It knows names by their
// hashes, so a field with a known name costs one look-up and no memory.
type ignoredFields struct {
	fields int64
	names  []string
	more   bool // true once a name was left out because the limit of names was reached
	known  map[uint64]struct{}

	// State of the current record: now is the number of its undeclared fields.
	now   int64
	fresh []freshName
}

// freshName is the name of an undeclared field of the current record that no row before has.
type freshName struct {
	hash uint64
	in   *object
	name string
}

// add counts an undeclared field of an object; hash is that of the name.
func (f *ignoredFields) add(o *object, hash uint64, name []byte) {
	f.now++
	if f.more {
		return
	}
	hash += o.pathHash
	if _, known := f.known[hash]; known {
		return
	}
	if len(f.names)+len(f.fresh) >= connector.MaxIgnoredNames {
		f.more = true
		return
	}
	if f.known == nil {
		f.known = map[uint64]struct{}{}
	}
	f.known[hash] = struct{}{}
	f.fresh = append(f.fresh, freshName{hash, o, nameOf(name)})
}

// keep counts the undeclared fields of a record that became a row.
func (f *ignoredFields) keep() {
	if f.now == 0 {
		return
	}
	f.fields, f.now = f.fields+f.now, 0
	for _, n := range f.fresh {
		if n.in.path != "" {
			n.name = n.in.path + "." + n.name
		}
		if !slices.Contains(f.names, n.name) { // two names may be equal once they are shortened
			f.names = append(f.names, n.name)
		}
	}
	f.fresh = f.fresh[:0]
}

// drop forgets the undeclared fields of a record that was refused.
func (f *ignoredFields) drop() {
	f.now = 0
	for _, n := range f.fresh {
		delete(f.known, n.hash)
	}
	f.fresh = f.fresh[:0]
}

// take returns the counts and names since the last call and resets them.
func (f *ignoredFields) take() connector.Ignored {
	i := connector.Ignored{Fields: f.fields, Names: slices.Clone(f.names), More: f.more}
	clear(f.known)
	f.fields, f.names, f.more = 0, f.names[:0], false
	return i
}
