package decode

import (
	"math"
	"math/bits"
)

// scaled is a JSON number times a power of ten, cut off at its point: ±magnitude, and what was cut off. It is computed
// from the digits of the text, never by floating point.
type scaled struct {
	hi, lo   uint64 // the magnitude
	negative bool
	rest     rest
	overflow bool // true if the magnitude has more than 128 bits; hi and lo are then undefined
}

// rest is the part of a magnitude that was cut off, compared with a half of the last digit that is left.
type rest uint8

const (
	nothing rest = iota
	belowHalf
	half
	aboveHalf
)

// scale returns x times 10^shift. The text of x is at p.
func (x *number) scale(b []byte, p, shift int) scaled {
	if !x.exact {
		return x.scaleText(b, p, shift)
	}
	s, e := scaled{negative: x.negative}, x.exp+shift
	switch {
	case x.mantissa == 0:
	case e < -maxDigits: // the mantissa is less than a tenth of 10^-e
		s.rest = belowHalf
	case e <= 0:
		d := pow10[-e]
		s.lo = x.mantissa / d
		s.rest = compare(x.mantissa%d, d)
	default:
		s.lo = x.mantissa
		s.shiftLeft(e)
	}
	return s
}

// compare compares the remainder r with d/2.
func compare(r, d uint64) rest {
	switch {
	case r == 0:
		return nothing
	case r < d-r:
		return belowHalf
	case r == d-r:
		return half
	}
	return aboveHalf
}

// shiftLeft multiplies a magnitude that is not 0 by 10^e.
func (s *scaled) shiftLeft(e int) {
	for ; e > 0 && !s.overflow; e -= maxDigits {
		s.multiply(pow10[min(e, maxDigits)], 0)
	}
}

// multiply multiplies the magnitude by m and adds a.
func (s *scaled) multiply(m, a uint64) {
	carry, lo := bits.Mul64(s.lo, m)
	over, hi := bits.Mul64(s.hi, m)
	lo, c := bits.Add64(lo, a, 0)
	hi, more := bits.Add64(hi, carry, c)
	s.hi, s.lo, s.overflow = hi, lo, s.overflow || over != 0 || more != 0
}

// scaleText is scale for numbers of more than maxDigits digits.
func (x *number) scaleText(b []byte, p, shift int) scaled {
	s := scaled{negative: x.negative}
	if x.negative {
		p++
	}
	count := 0
	for q := p; b[q] == '.' || b[q]-'0' <= 9; q++ {
		if b[q] != '.' {
			count++
		}
	}
	whole := count + x.exp + shift // number of digits before the point of the result
	for at := 0; at < count && !s.overflow; p++ {
		if b[p] == '.' {
			continue
		}
		digit := uint64(b[p] - '0')
		switch {
		case at < whole:
			s.multiply(10, digit)
		case at == whole:
			s.rest = compare(digit, 10)
		case digit > 0 && s.rest == nothing:
			s.rest = belowHalf
		case digit > 0 && s.rest == half:
			s.rest = aboveHalf
		}
		at++
	}
	if whole > count && s.hi|s.lo != 0 {
		s.shiftLeft(whole - count)
	}
	return s
}

// below reports whether the magnitude is less than another one.
func (s *scaled) below(hi, lo uint64) bool {
	return !s.overflow && (s.hi < hi || s.hi == hi && s.lo < lo)
}

// integer returns the number in 64 bits; ok is false if it does not fit, or was cut off.
func (s *scaled) integer() (v int64, ok bool) {
	switch {
	case s.overflow || s.hi != 0:
	case !s.negative:
		return int64(s.lo), s.lo <= math.MaxInt64 //nolint:gosec // the same condition
	default:
		return -int64(s.lo), s.lo <= 1<<63 //nolint:gosec // -(1<<63) wraps onto itself, as intended
	}
	return 0, false
}

// words returns the number in two's complement, as Arrow stores decimals.
func (s *scaled) words() (hi, lo uint64) {
	if !s.negative {
		return s.hi, s.lo
	}
	lo, borrow := bits.Sub64(0, s.lo, 0)
	hi, _ = bits.Sub64(0, s.hi, borrow)
	return hi, lo
}

// round adjusts the magnitude by what was cut off. It returns false if that needs an option.
func (s *scaled) round(f Fraction) bool {
	if s.rest == nothing {
		return true
	}
	away := false // true if the result is the next magnitude
	switch f {
	case RefuseFraction:
		return false
	case RoundFraction:
		away = s.rest == aboveHalf || s.rest == half && !s.negative
	case TruncateFraction:
		away = s.negative
	}
	if away {
		s.multiply(1, 1)
	}
	return true
}

// parseWhole parses an integer in any notation, such as 1.0 and 1e3; its results are like those of parseInt.
func parseWhole(b []byte, p int) (v int64, end int, why Reason) {
	x, end, ok := scanNumber(b, p)
	if !ok {
		return 0, end, Syntax
	}
	s := x.scale(b, p, 0)
	if s.rest != nothing {
		return 0, end, NotIntegral
	}
	if v, ok = s.integer(); !ok {
		return 0, end, OutOfRange
	}
	return v, end, 0
}

// power returns 10^n as 128 bits, n <= schema.MaxPrecision.
func power(n int) (hi, lo uint64) {
	s := scaled{lo: 1}
	s.shiftLeft(n)
	return s.hi, s.lo
}
