//nolint:gosec // G115: bits of integers are moved into words on purpose; the ranges are checked where they matter.
package decode

import (
	"math"
	"math/bits"
	"strconv"
)

var (
	pow10  = [20]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19}
	pow10f = [20]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19}
)

// maxDigits is the number of decimal digits that always fit into 64 bits.
const maxDigits = 19

// leadingDigits counts the decimal digits at the start of w, a word of text XORed with "00000000". It marks bytes that
// are no digits; only the lowest mark is exact, and only that one is used.
func leadingDigits(w uint64) int {
	return bits.TrailingZeros64(((w+ones*0x76)|w)&highs) >> 3
}

// eightDigits returns the number in w, a word of text XORed with "00000000" (Daniel Lemire, "Number parsing at a
// gigabyte per second", section 3).
func eightDigits(w uint64) uint64 {
	w = (w * (10<<8 + 1)) >> 8 & 0x00ff00ff00ff00ff
	w = (w * (100<<16 + 1)) >> 16 & 0x0000ffff0000ffff
	return (w * (10000<<32 + 1)) >> 32
}

// firstDigits returns the number formed by the first digits at p, at most 8, and how many they are, perhaps none.
func firstDigits(b []byte, p int) (uint64, int) {
	w := load64(b, p) ^ zeros
	n := leadingDigits(w)
	return eightDigits(w << (64 - 8*n)), n // the shift puts zeros before the digits; for n = 0 the result is 0
}

// digits appends the decimal digits at p to the number m and returns their end. It has no branch on the number of
// digits in a word. m wraps beyond maxDigits, so the caller must count the digits.
func digits(b []byte, p int, m uint64) (uint64, int) {
	for {
		v, n := firstDigits(b, p)
		m = m*pow10[n] + v
		p += n
		if n < 8 {
			return m, p
		}
	}
}

// number is a JSON number in parts: ±mantissa × 10^exp.
type number struct {
	mantissa uint64
	exp      int
	negative bool
	exact    bool // true if the mantissa did not wrap
}

// scanNumber parses any number of RFC 8259. If ok is false, end is the position of the invalid character.
func scanNumber(b []byte, p int) (x number, end int, ok bool) {
	x.negative = b[p] == '-'
	if x.negative {
		p++
	}
	start := p
	x.mantissa, p = digits(b, p, 0)
	n := p - start
	if n == 0 {
		return x, p, false
	}
	if n > 1 && b[start] == '0' {
		return x, start + 1, false
	}
	if b[p] == '.' {
		from := p + 1
		x.mantissa, p = digits(b, from, x.mantissa)
		if p == from {
			return x, p, false
		}
		x.exp = from - p
		n += p - from
	}
	x.exact = n <= maxDigits
	if b[p]|0x20 == 'e' {
		p++
		sign := 1
		if b[p] == '-' {
			sign = -1
		}
		if b[p] == '-' || b[p] == '+' {
			p++
		}
		from, e := p, 0
		for ; b[p]-'0' <= 9; p++ {
			e = min(e*10+int(b[p]-'0'), 1<<30) // the cap is far beyond the exponent of any double
		}
		if p == from {
			return x, p, false
		}
		x.exp += sign * e
	}
	return x, p, true
}

// parseInt parses an integer at p, in any notation, without floating point; -0 is 0. why is 0 on success. end is the position after the
// number or, for Syntax, of the invalid character.
func parseInt(b []byte, p int) (v int64, end int, why Reason) {
	start := p
	if b[p] == '-' {
		p++
	}
	first := p
	m, n := firstDigits(b, p)
	if p += n; n == 8 {
		m, p = digits(b, p, m)
		n = p - first
	}
	if c := b[p]; n == 0 || n > 1 && b[first] == '0' || c == '.' || c|0x20 == 'e' {
		return parseWhole(b, start)
	}
	if n > maxDigits {
		return 0, p, OutOfRange
	}
	if b[start] != '-' {
		if m > math.MaxInt64 {
			return 0, p, OutOfRange
		}
		return int64(m), p, 0
	}
	if m > 1<<63 {
		return 0, p, OutOfRange
	}
	return -int64(m), p, 0 // -(1<<63) wraps onto itself, as intended
}

// parseDouble parses a correctly rounded double at p; its results are like those of parseInt. Too large a number is
// OutOfRange, too small a one becomes ±0.
func parseDouble(b []byte, p int) (v float64, end int, why Reason) {
	start, negative := p, 0
	if b[p] == '-' { // compiled without a branch: signs are random
		negative = 1
	}
	p += negative
	first := p
	m, n := firstDigits(b, p)
	if p += n; n == 8 {
		m, p = digits(b, p, m)
		n = p - first
	}
	fraction := 0
	if b[p] == '.' {
		p++
		from := p
		v, k := firstDigits(b, p)
		m = m*pow10[k] + v
		if p += k; k == 8 {
			m, p = digits(b, p, m)
		}
		if fraction = p - from; fraction == 0 {
			n = 0 // no digit after the point: leads to parseFloat, which refuses the text
		}
	}
	if n == 0 || n > 1 && b[first] == '0' || n+fraction > maxDigits || b[p]|0x20 == 'e' {
		return parseFloat(b, start, 64)
	}
	if m>>53 == 0 {
		// Both operands are exact doubles, so one operation rounds once (Clinger 1990).
		v = float64(int64(m)) / pow10f[fraction]
	} else {
		v = quotient(m, fraction, 64)
	}
	return math.Float64frombits(math.Float64bits(v) | uint64(negative)<<63), p, 0
}

// parseFloat is parseDouble for every notation and for both sizes, 32 and 64 bits. A single is never rounded to a
// double first: rounding twice would be wrong.
func parseFloat(b []byte, p, size int) (v float64, end int, why Reason) {
	x, end, ok := scanNumber(b, p)
	if !ok {
		return 0, end, Syntax
	}
	if v, ok = x.float(size); !ok {
		var err error
		if v, err = strconv.ParseFloat(string(b[p:end]), size); err != nil {
			return 0, end, OutOfRange
		}
		return v, end, 0
	}
	if x.negative {
		v = -v
	}
	return v, end, 0
}

// float returns the magnitude of a number, correctly rounded. ok is false beyond maxDigits digits or if the power of
// ten does not fit into 64 bits: strconv parses such numbers.
func (x *number) float(size int) (v float64, ok bool) {
	switch {
	case !x.exact || x.exp < -maxDigits || x.exp > maxDigits:
		return 0, false
	case x.mantissa == 0:
		return 0, true
	case x.exp < 0:
		return quotient(x.mantissa, -x.exp, size), true
	}
	hi, lo := bits.Mul64(x.mantissa, pow10[x.exp])
	if hi == 0 {
		lz := bits.LeadingZeros64(lo)
		return roundTo(size, lo<<lz, -lz), true
	}
	lz := bits.LeadingZeros64(hi)
	top := hi<<lz | lo>>(64-lz)
	if lo<<lz != 0 {
		top |= 1
	}
	return roundTo(size, top, 64-lz), true
}

// quotient returns m / 10^k for m > 0 and k <= maxDigits, correctly rounded: integer division of 128 bits is exact,
// and bit 0 keeps a remainder.
func quotient(m uint64, k, size int) float64 {
	d := pow10[k]
	sm, sd := bits.LeadingZeros64(m), bits.LeadingZeros64(d)
	m, d = m<<sm, d<<sd
	q, rem := bits.Div64(m>>1, m<<63, d) // the quotient is in (1<<62, 1<<64)
	if rem != 0 {
		q |= 1
	}
	lz := bits.LeadingZeros64(q)
	return roundTo(size, q<<lz, sd-sm-63-lz)
}

// roundTo returns q × 2^exp, q >= 1<<63, rounded to even at the precision of a double or single. The callers stay
// within the normal range.
func roundTo(size int, q uint64, exp int) float64 {
	drop := 64 - 53
	if size == 32 {
		drop = 64 - 24
	}
	mantissa, rest, half := q>>drop, q&(1<<drop-1), uint64(1)<<(drop-1)
	if rest > half || rest == half && mantissa&1 == 1 {
		mantissa++
	}
	return float64(int64(mantissa)) * math.Float64frombits(uint64(exp+drop+1023)<<52)
}
