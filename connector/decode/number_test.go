package decode

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

func padded(text string) []byte { return append([]byte(text), zeroPadding[:]...) }

// TestFloats compares the decoder's floats with those of strconv: shortest, long, halfway and scaled numbers.
func TestFloats(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 0, 128)
	for i := range 200_000 {
		buf = buf[:0]
		m := r.Uint64() >> r.IntN(40)
		switch i % 5 {
		case 0: // up to 19 digits and a point somewhere
			text := strconv.FormatUint(m%1e19, 10)
			at := r.IntN(len(text))
			buf = append(append(append(buf, text[:at]...), "."[:min(1, at)]...), text[at:]...)
			if at == 0 && text[0] == '0' {
				buf = append(buf[:0], '0')
			}
		case 1: // exactly between two doubles, or slightly above
			buf = strconv.AppendUint(buf, (m|1<<63)>>10|1, 10)
			buf = append(buf, fmt.Sprintf(".%de-%d", r.IntN(2), r.IntN(20))...)
		case 2:
			buf = strconv.AppendFloat(buf, math.Float64frombits(r.Uint64()&^(1<<62)), 'e', -1, 64)
		case 3:
			buf = strconv.AppendFloat(buf, r.NormFloat64(), 'f', -1, 64)
		case 4:
			buf = append(buf, fmt.Sprintf("%de%d", m%1e19, r.IntN(50)-25)...)
		}
		checkFloat(t, string(buf))
	}
	for exp := -400; exp < 400; exp++ {
		for _, m := range []string{"0", "-0", "1", "9007199254740993", "9999999999999999999", "99999999999999999999", "4.9", "1.7976931348623157", "1.7976931348623159", "3.4028235", "3.4028236", "1.1754943"} {
			checkFloat(t, fmt.Sprintf("%se%d", m, exp))
		}
	}
}

func checkFloat(t *testing.T, text string) {
	t.Helper()
	b := padded(text)
	for _, size := range []int{64, 32} {
		want, err := strconv.ParseFloat(text, size)
		got, end, why := parseFloat(b, 0, size)
		if (err != nil) != (why != 0) || err == nil && (math.Float64bits(got) != math.Float64bits(want) || end != len(text)) {
			t.Fatalf("%s (%d bits): %v %v, want %v %v", text, size, got, why, want, err)
		}
	}
	want, end, why := parseFloat(b, 0, 64)
	if got, end2, why2 := parseDouble(b, 0); math.Float64bits(got) != math.Float64bits(want) || end != end2 || why != why2 {
		t.Fatalf("%s: the short way gives %v, the long one %v", text, got, want)
	}
}

// TestIntegers compares the decoder's integers with those of strconv, around every power of ten and of two, with both
// signs.
func TestIntegers(t *testing.T) {
	check := func(text string) {
		want, err := strconv.ParseInt(text, 10, 64)
		got, end, why := parseInt(padded(text), 0)
		if (err != nil) != (why == OutOfRange) || err == nil && (got != want || end != len(text) || why != 0) {
			t.Fatalf("%s: %d %v, want %d %v", text, got, why, want, err)
		}
	}
	around := func(v uint64) {
		for d := range uint64(7) {
			text := strconv.FormatUint(v+d-3, 10)
			check(text)
			check("-" + text)
			if text == "0" {
				continue
			}
			check(text + "0")
			check("-" + text + "0000000000000000000000000")
		}
	}
	for i := range 64 {
		around(1 << i)
	}
	for _, p := range pow10 {
		around(p)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		v := r.Uint64() >> r.IntN(64)
		check(strconv.FormatUint(v, 10))
		check("-" + strconv.FormatUint(v, 10))
	}
}

// TestNoNumbers: each text that is not a number is refused by the parsers of all number types, at the same character.
func TestNoNumbers(t *testing.T) {
	for _, c := range []struct {
		text string
		end  int
	}{
		{"-", 1},
		{"--1", 1},
		{"-x", 1},
		{"00", 1},
		{"-012", 2},
		{"01.5", 1},
		{"1.", 2},
		{"1.x", 2},
		{"1.e5", 2},
		{"1e", 2},
		{"1e+", 3},
		{"1E-x", 3},
		{"12345678901234567890.", 21},
		{"1.5e", 4},
	} {
		b := padded(c.text)
		_, intEnd, intWhy := parseInt(b, 0)
		_, doubleEnd, doubleWhy := parseDouble(b, 0)
		_, singleEnd, singleWhy := parseFloat(b, 0, 32)
		if intWhy != Syntax || doubleWhy != Syntax || singleWhy != Syntax || intEnd != c.end || doubleEnd != c.end || singleEnd != c.end {
			t.Errorf("%s: %v at %d, %v at %d, %v at %d", c.text, intWhy, intEnd, doubleWhy, doubleEnd, singleWhy, singleEnd)
		}
	}
}

// TestDates: parseDate agrees with package time about every day of the years 0 to 9999. It refuses months and days that
// do not exist, and texts that are no date.
func TestDates(t *testing.T) {
	text := padded("0000-00-00")
	for y := range 10000 {
		for m := range 14 {
			first := time.Date(y, time.Month(m), 1, 0, 0, 0, 0, time.UTC)
			length := first.AddDate(0, 1, -1).Day()
			for d := range 33 {
				writeDate(text, y, m, d)
				want := int32(first.Unix()/86400) + int32(d) - 1
				days, ok := parseDate(text, 0)
				if valid := m >= 1 && m <= 12 && d >= 1 && d <= length; ok != valid || ok && days != want {
					t.Fatalf("%s: %d %v, want %d %v", text[:10], days, ok, want, valid)
				}
			}
		}
	}
	for _, bad := range []string{"", "2026", "2026-01", "2026/01/01", "2026-01-0", "2026-01-0x", "202x-01-01", "-026-01-01", "+026-01-01"} {
		if _, ok := parseDate(padded(bad), 0); ok {
			t.Errorf("%q is no date", bad)
		}
	}
}

func writeDate(b []byte, y, m, d int) {
	for i, v := range []int{y / 100, y % 100, m, d} {
		at := []int{0, 2, 5, 8}[i]
		b[at], b[at+1] = '0'+byte(v/10), '0'+byte(v%10)
	}
}

// TestTimestamps: parseTimestamp agrees with package time about every second of a day, about every offset from UTC, and
// about fractions of each length. It refuses hours, minutes and seconds that do not exist.
func TestTimestamps(t *testing.T) {
	m := newMinute()
	check := func(text string, truncate bool, want int64, wantWhy Reason) {
		t.Helper()
		o := ColumnOption{}
		if truncate {
			o.Fraction = TruncateFraction
		}
		got, end, why := m.parseTimestamp(padded(text), 0, &o)
		if why != wantWhy || why == 0 && (got != want || end != len(text)) {
			t.Fatalf("%s: %d to %d %v, want %d %v", text, got, end, why, want, wantWhy)
		}
	}
	for h := range 25 {
		for min := range 61 {
			for s := range 61 {
				at := time.Date(2024, 2, 29, h, min, s, 0, time.UTC)
				why := Reason(0)
				if h > 23 || min > 59 || s > 59 {
					why = BadTimestamp
				}
				check(fmt.Sprintf("2024-02-29T%02d:%02d:%02dZ", h, min, s), false, at.UnixMicro(), why)
			}
			offset := time.Duration(h)*time.Hour + time.Duration(min)*time.Minute
			at := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
			why := Reason(0)
			if h > 23 || min > 59 {
				why = BadTimestamp
			}
			check(fmt.Sprintf("2024-02-29 00:00:00+%02d:%02d", h, min), false, at.Add(-offset).UnixMicro(), why)
			check(fmt.Sprintf("2024-02-29t00:00:00-%02d:%02d", h, min), false, at.Add(offset).UnixMicro(), why)
		}
	}
	r := rand.New(rand.NewPCG(5, 6))
	for n := 1; n <= 20; n++ {
		for range 200 {
			digits := fmt.Sprintf("%020d", r.Uint64())[20-n:]
			if r.IntN(2) == 0 && n > 6 { // zeros after the microseconds are allowed
				digits = digits[:6] + fmt.Sprintf("%0*d", n-6, 0)
			}
			padded := digits + "000000"
			micros, err := strconv.ParseInt(padded[:6], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			why := Reason(0)
			for _, c := range padded[6:] {
				if c != '0' {
					why = TooPrecise
				}
			}
			check("1969-12-31T23:59:59."+digits+"Z", false, micros-1e6, why)
			check("1969-12-31T23:59:59."+digits+"z", true, micros-1e6, 0)
		}
	}
	for _, bad := range []string{
		"", "1970-01-01", "1970-01-01T00:00", "1970-01-01T00:00:00", "1970-01-01T00:00:00.Z", "1970-01-01T00:00:00.1", "1970-01-01T00:00:00+", "1970-01-01T00:00:00+1:00",
		"1970-01-01T00:00:00+0100", "1970-01-01T00:00:00+01", "1970-01-01_00:00:00Z", "1970-01-01T00-00:00Z", "1970-01-01T00:00-00Z", "1970-01-01T00:00:0Z", "1970-01-32T00:00:00Z",
	} {
		check(bad, true, 0, BadTimestamp)
	}
}
