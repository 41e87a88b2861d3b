package decode

import "hash/maphash"

// Checker checks records as [JSON] does, without a table: that a value is one JSON object that the decoder accepts.
// Only one goroutine may use it.
type Checker struct{ d *jsonDecoder }

// NewChecker returns a checker with the default limits.
func NewChecker() *Checker {
	limits := JSON{MaxBytes: DefaultMaxBytes, MaxDepth: DefaultMaxDepth, MaxValues: DefaultMaxValues}
	return &Checker{&jsonDecoder{limits: limits, names: nameSet{seed: maphash.MakeSeed()}, root: &object{}}}
}

// Check reports whether a value is valid, and if not, the reason for which a decoder would refuse the record.
func (c *Checker) Check(value []byte) (why Reason, ok bool) {
	d := c.d
	d.start(value)
	defer func() { d.record, d.reason = nil, 0 }()
	switch {
	case len(value) == 0:
		return NoValue, false
	case len(value) > d.limits.MaxBytes:
		return TooLarge, false
	}
	b := d.padded(value)
	p := space(b, 0)
	if b[p] == '{' {
		p = d.skip(b, p, 1)
	} else {
		p = d.mismatch(b, p)
	}
	if p >= 0 && space(b, p) < len(value) {
		d.fail(TrailingBytes, p)
	}
	return d.reason, d.reason == 0
}
