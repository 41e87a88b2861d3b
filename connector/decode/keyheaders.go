package decode

import (
	"unicode/utf8"

	"sluice/connector"
	"sluice/connector/schema"
)

// keyHeaders are the columns for the keys and headers of records; each is nil if the table has none.
type keyHeaders struct {
	key     *column
	headers *column
	// name and value are the columns in the struct that is the element of headers.
	name, value *column
	padded      []byte // the last text that was added, with padding
}

func (k *keyHeaders) setHeaders(c *column) {
	k.headers = c
	for i := range c.elem.object.members {
		switch m := c.elem.object.members[i].column; m.name {
		case schema.HeaderKey:
			k.name = m
		case schema.HeaderValue:
			k.value = m
		}
	}
}

// fits reports whether the columns can have the key and the headers of a record, without a change of a byte.
func (k *keyHeaders) fits(d *jsonDecoder, r *connector.Record) bool {
	if k.key != nil {
		switch {
		case r.Key == nil && !k.key.nullable:
			d.fail(RequiredMissing, 0)
			d.inColumn(k.key)
			return false
		case k.key.kind == schema.String && !utf8.Valid(r.Key):
			d.fail(InvalidUTF8, 0)
			d.inColumn(k.key)
			return false
		}
	}
	if k.headers != nil {
		for i := range r.Headers {
			if !utf8.ValidString(r.Headers[i].Key) {
				d.fail(InvalidUTF8, 0)
				d.inColumn(k.headers)
				return false
			}
		}
	}
	return true
}

// size returns the bytes and the elements that the columns get from a record.
func (k *keyHeaders) size(r *connector.Record) (n int) {
	if k.key != nil {
		n = len(r.Key)
	}
	if k.headers != nil {
		for i := range r.Headers {
			n += 1 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
		}
	}
	return n
}

// put fills the columns in a row. Headers keep their order, and names that come twice stay.
func (k *keyHeaders) put(r *connector.Record, row int) {
	if k.key != nil && r.Key != nil {
		k.key.fillMissed(row)
		k.padded = padText(k.padded, r.Key)
		k.key.putText(k.padded, 0, len(r.Key))
	}
	c := k.headers
	if c == nil {
		return
	}
	c.fillMissed(row)
	for i := range r.Headers {
		h := &r.Headers[i]
		c.elem.fillMissed(c.elems)
		c.elem.n++
		k.name.fillMissed(c.elems)
		k.padded = padText(k.padded, h.Key)
		k.name.putText(k.padded, 0, len(h.Key))
		if h.Value != nil {
			k.value.fillMissed(c.elems)
			k.padded = padText(k.padded, h.Value)
			k.value.putText(k.padded, 0, len(h.Value))
		}
		c.elems++
	}
	c.endList(0)
}

// padText returns the text with padding behind it, in the memory of to.
func padText[T string | []byte](to []byte, text T) []byte {
	return append(append(to[:0], text...), zeroPadding[:]...)
}
