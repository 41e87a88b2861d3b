//nolint:gosec // G115: bits of integers are moved into words on purpose; the ranges are checked where they matter.
package decode

// minute caches the last "YYYY-MM-DDTHH:MM" of a column. Records are nearly in order of time, so for most of them
// comparing two words replaces the calendar arithmetic.
type minute struct {
	lo, hi uint64 // the text of 16 bytes
	epoch  int64  // its time in seconds since 1970
}

func newMinute() minute {
	text := []byte("1970-01-01T00:00")
	return minute{load64(text, 0), load64(text, 8), 0}
}

// minMicros and maxMicros are the first and the last microsecond of the years 0 to 9999 in UTC, in microseconds since
// 1970. Texts have four digits for the year. A number outside is nearly always one of another unit, and some readers
// fail at such years.
const (
	minMicros = -62167219200_000000
	maxMicros = 253402300800_000000 - 1
)

// parseTimestamp parses RFC 3339 at p as microseconds since 1970 in UTC (section 5.6, and from its notes lower-case t
// and z and a space for T). The offset from UTC is required without the option UTC, and leap seconds (:60) are refused.
// Digits finer than a microsecond must be zeros, unless the option Fraction says otherwise. end is the position after
// the text.
func (last *minute) parseTimestamp(b []byte, p int, o *ColumnOption) (v int64, end int, why Reason) {
	lo, hi := load64(b, p), load64(b, p+8)
	if lo != last.lo || hi != last.hi {
		epoch, ok := parseMinute(b, p)
		if !ok {
			return 0, p, BadTimestamp
		}
		*last = minute{lo, hi, epoch}
	}
	second := twoDigits(b, p+17)
	if b[p+16] != ':' || second > 59 {
		return 0, p, BadTimestamp
	}
	seconds := last.epoch + int64(second)
	p += 19
	micros := int64(0)
	if b[p] == '.' {
		w := load64(b, p+1) ^ zeros
		n := leadingDigits(w)
		if n == 0 {
			return 0, p, BadTimestamp
		}
		hundredths := int64(eightDigits(w<<(64-8*n)) * pow10[8-n]) // in hundredths of a microsecond
		micros = hundredths / 100
		finer := hundredths % 100
		p += 1 + n
		if n == 8 {
			for ; b[p]-'0' <= 9; p++ {
				if b[p] != '0' {
					finer |= 1
				}
			}
		}
		if finer != 0 {
			if o.Fraction == RefuseFraction {
				return 0, p, TooPrecise
			}
			if o.Fraction == RoundFraction && finer >= 50 {
				micros++
			}
		}
	}
	switch c := b[p]; {
	case c|0x20 == 'z':
		p++
	case c == '+' || c == '-':
		h, m := twoDigits(b, p+1), twoDigits(b, p+4)
		if h > 23 || m > 59 || b[p+3] != ':' {
			return 0, p, BadTimestamp
		}
		offset := int64(h)*3600 + int64(m)*60
		if c == '-' {
			offset = -offset
		}
		seconds -= offset
		p += 6
	case !o.UTC:
		return 0, p, BadTimestamp
	}
	return seconds*1e6 + micros, p, 0
}

// parseMinute converts "YYYY-MM-DDTHH:MM" to seconds since 1970.
func parseMinute(b []byte, p int) (int64, bool) {
	days, ok := parseDate(b, p)
	h, m := twoDigits(b, p+11), twoDigits(b, p+14)
	if c := b[p+10]; !ok || c|0x20 != 't' && c != ' ' || b[p+13] != ':' || h > 23 || m > 59 {
		return 0, false
	}
	return int64(days)*86400 + int64(h)*3600 + int64(m)*60, true
}

// parseDate converts "YYYY-MM-DD" to days since 1970.
func parseDate(b []byte, p int) (int32, bool) {
	century, year, month, day := twoDigits(b, p), twoDigits(b, p+2), twoDigits(b, p+5), twoDigits(b, p+8)
	if century > 99 || year > 99 || b[p+4] != '-' || b[p+7] != '-' || month < 1 || month > 12 || day < 1 || day > 31 {
		return 0, false
	}
	y := int(century*100 + year)
	if day > 28 {
		length := [13]uint{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[month]
		if month == 2 && y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			length = 29
		}
		if day > length {
			return 0, false
		}
	}
	// Howard Hinnant's days_from_civil: years start in March, so that the leap day is the last one.
	if month <= 2 {
		y--
	}
	y += 400 // avoids dividing a negative number for year 0
	era, yearOfEra := y/400, y%400
	dayOfYear := (153*((int(month)+9)%12)+2)/5 + int(day) - 1
	return int32((era-1)*146097 + yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear - 719468), true
}

// twoDigits returns the number of the two digits at p, or a number above 99 if two digits do not stand there.
func twoDigits(b []byte, p int) uint {
	x, y := uint(b[p]-'0'), uint(b[p+1]-'0')
	if x > 9 || y > 9 {
		return 100
	}
	return x*10 + y
}
