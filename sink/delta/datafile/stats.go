package datafile

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// deltaStats renders Delta's statistics of a file: the number of rows, and for each indexed leaf, nested as in the
// schema, the bounds and the number of nulls. A bound that cannot include every value is omitted: engines skip files
// by bounds, and one engine takes a column for constant if its bounds are equal and it has no nulls. Without an indexed
// leaf the statistics are the number of rows alone.
func deltaStats(cols *columns, stats []stat, rows int64, stringPrefix int) string {
	b := strconv.AppendInt([]byte(`{"numRecords":`), rows, 10)
	if !cols.indexed {
		return string(append(b, '}'))
	}
	b = append(b, `,"minValues":`...)
	b = appendObject(b, cols.root, func(b []byte, c *column) []byte {
		return appendMin(b, c, &stats[c.stat], stringPrefix)
	})
	b = append(b, `,"maxValues":`...)
	b = appendObject(b, cols.root, func(b []byte, c *column) []byte {
		return appendMax(b, c, &stats[c.stat], stringPrefix)
	})
	b = append(b, `,"nullCount":`...)
	b = appendObject(b, cols.root, func(b []byte, c *column) []byte {
		return strconv.AppendInt(b, stats[c.stat].nulls, 10)
	})
	return string(append(b, '}'))
}

// appendObject renders the columns of one level of the schema. It omits columns for which add appends nothing, and
// structs behind the indexed columns. Another struct without a rendered field is an empty object, as deltalake writes
// it: deltalake's pyarrow dataset takes a struct that is missing for null in all rows.
func appendObject(b []byte, list []*column, add func([]byte, *column) []byte) []byte {
	b = append(b, '{')
	first := true
	for _, c := range list {
		undo := len(b)
		if !first {
			b = append(b, ',')
		}
		b = append(append(b, c.key...), ':')
		value := len(b)
		switch {
		case c.kind == kindStruct:
			if hasSelected(c.children) {
				b = appendObject(b, c.children, add)
			}
		case c.statistics == InLogAndFooter:
			b = add(b, c)
		}
		if len(b) == value {
			b = b[:undo]
			continue
		}
		first = false
	}
	return append(b, '}')
}

// hasSelected reports whether one of the columns, or a field below them, has statistics in the log, or is excluded.
func hasSelected(list []*column) bool {
	return slices.ContainsFunc(list, func(c *column) bool {
		if c.kind == kindStruct {
			return hasSelected(c.children)
		}
		return c.statistics != InFooter
	})
}

func appendMin(b []byte, c *column, s *stat, stringPrefix int) []byte {
	if !s.seen {
		return b
	}
	switch c.kind {
	case kindBool:
		// Spark writes no bounds for booleans. deltalake writes them. When it passes a table to pyarrow, it treats a
		// column without bounds as if it had no values, so they are written here, too.
		return strconv.AppendBool(b, s.minInt == 1)
	case kindInt:
		return strconv.AppendInt(b, s.minInt, 10)
	case kindDate:
		return appendTime(b, time.Unix(s.minInt*secondsPerDay, 0), time.DateOnly)
	case kindTimestamp:
		ms := s.minInt / 1000
		if s.minInt%1000 < 0 {
			ms--
		}
		return appendTime(b, time.UnixMilli(ms), timestampLayout(c))
	case kindFloat:
		if math.IsInf(s.minFloat, 0) {
			return b
		}
		if s.minFloat == 0 {
			return append(b, "-0.0"...) // some engines order -0.0 before 0.0, so a minimum of zero is -0.0
		}
		return appendFloat(b, s.minFloat)
	case kindDecimal:
		return append(b, s.minDec.ToString(c.typ.(*arrow.Decimal128Type).Scale)...)
	case kindString:
		if bound, ok := lowerBound(s.minBytes, stringPrefix); ok {
			return jsonString(b, bound)
		}
		return b
	case kindBinary, kindStruct, kindList, kindMap: // values of these kinds have no bounds: only their nulls are counted
	}
	return b
}

func appendMax(b []byte, c *column, s *stat, stringPrefix int) []byte {
	if !s.seen {
		return b
	}
	switch c.kind {
	case kindBool:
		return strconv.AppendBool(b, s.maxInt == 1)
	case kindInt:
		return strconv.AppendInt(b, s.maxInt, 10)
	case kindDate:
		return appendTime(b, time.Unix(s.maxInt*secondsPerDay, 0), time.DateOnly)
	case kindTimestamp:
		// Statistics have milliseconds. By the protocol writers round down and readers allow for it. Not all readers do,
		// so this maximum is rounded up.
		ms := s.maxInt / 1000
		if s.maxInt%1000 > 0 {
			ms++
		}
		if t := time.UnixMilli(ms); t.UTC().Year() <= maxYear {
			return appendTime(b, t, timestampLayout(c))
		}
		// Rounding up would leave the last year that has a bound, so the bound is the value itself.
		return appendTime(b, time.UnixMicro(s.maxInt), strings.Replace(timestampLayout(c), ".000", ".000000", 1))
	case kindFloat:
		if s.nan || math.IsInf(s.maxFloat, 0) {
			return b // the column has a NaN, which is the greatest value for most engines: it gets no upper bound
		}
		if s.maxFloat == 0 {
			return append(b, "0.0"...)
		}
		return appendFloat(b, s.maxFloat)
	case kindDecimal:
		return append(b, s.maxDec.ToString(c.typ.(*arrow.Decimal128Type).Scale)...)
	case kindString:
		if bound, ok := upperBound(s.maxBytes, stringPrefix); ok {
			return jsonString(b, bound)
		}
		return b
	case kindBinary, kindStruct, kindList, kindMap:
	}
	return b
}

const (
	secondsPerDay = 24 * 60 * 60
	maxYear       = 9999 // the last year of a bound
)

func timestampLayout(c *column) string {
	if c.typ.(*arrow.TimestampType).TimeZone == "" {
		return "2006-01-02T15:04:05.000"
	}
	return "2006-01-02T15:04:05.000Z"
}

// appendTime appends t as a JSON string. It appends nothing if the year is not from 1 to 9999, because engines parse
// such years differently.
func appendTime(b []byte, t time.Time, layout string) []byte {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > maxYear {
		return b
	}
	b = append(b, '"')
	return append(t.AppendFormat(b, layout), '"')
}

// appendFloat writes the digits of the double, even for 32-bit floats, because readers may parse and compare as
// doubles. The text always has a point or an exponent, so that readers do not take the column for integers.
func appendFloat(b []byte, x float64) []byte {
	start, format := len(b), byte('f')
	if a := math.Abs(x); a < 1e-6 || a >= 1e21 {
		format = 'e'
	}
	b = strconv.AppendFloat(b, x, format, -1, 64)
	for _, c := range b[start:] {
		if c == '.' || c == 'e' {
			return b
		}
	}
	return append(b, ".0"...)
}
