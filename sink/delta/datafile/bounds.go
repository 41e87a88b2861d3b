//nolint:gosec // G115: bits of numbers are moved into words on purpose.
package datafile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// stat has the statistics of a column in a row group or a file. Only the bounds of the column's kind are used, and
// only if seen is true.
type stat struct {
	nulls int64
	seen  bool // there is a value, other than NaN
	nan   bool // there is a NaN

	minInt, maxInt     int64 // bounds of booleans (0 or 1), integers, days and microseconds
	minFloat, maxFloat float64
	minBytes, maxBytes []byte // bounds of texts and binaries: at most cutAt bytes of the value
	minDec, maxDec     decimal128.Num
}

// merge adds the statistics o of other rows of the same column.
func (s *stat) merge(o *stat, k kind) {
	s.nulls += o.nulls
	s.nan = s.nan || o.nan
	if !o.seen {
		return
	}
	if !s.seen {
		nulls, nan := s.nulls, s.nan
		*s = *o
		s.nulls, s.nan = nulls, nan
		return
	}
	switch k {
	case kindBool, kindInt, kindDate, kindTimestamp:
		s.minInt, s.maxInt = min(s.minInt, o.minInt), max(s.maxInt, o.maxInt)
	case kindFloat:
		s.minFloat, s.maxFloat = min(s.minFloat, o.minFloat), max(s.maxFloat, o.maxFloat)
	case kindDecimal:
		s.decimal(o.minDec)
		s.decimal(o.maxDec)
	case kindString, kindBinary:
		s.bytes(o.minBytes)
		s.bytes(o.maxBytes)
	case kindStruct, kindList, kindMap:
	}
}

func (s *stat) decimal(v decimal128.Num) {
	if !s.seen {
		s.minDec, s.maxDec, s.seen = v, v, true
		return
	}
	if v.Less(s.minDec) {
		s.minDec = v
	}
	if s.maxDec.Less(v) {
		s.maxDec = v
	}
}

func (s *stat) bytes(v []byte) {
	if !s.seen {
		s.minBytes, s.maxBytes, s.seen = v, v, true
		return
	}
	if bytes.Compare(v, s.minBytes) < 0 {
		s.minBytes = v
	} else if bytes.Compare(v, s.maxBytes) > 0 {
		s.maxBytes = v
	}
}

// detach copies and shortens the byte bounds, which alias the rows until then. A prefix preserves the order of values,
// so bounds can still be merged afterwards.
func (s *stat) detach(cutAt int) {
	s.minBytes = bytes.Clone(s.minBytes[:min(len(s.minBytes), cutAt)])
	s.maxBytes = bytes.Clone(s.maxBytes[:min(len(s.maxBytes), cutAt)])
}

// maxFooterBound is the size of the longest byte bound in the footer. A longer bound is left out, not shortened,
// because engines take footer bounds for real values of the column.
const maxFooterBound = 64

// cutAt is the number of bytes of a bound to keep. That is enough to detect a bound too long for the footer, and
// enough whole characters for [upperBound], which examines at most twice the prefix plus one.
func cutAt(stringPrefix int) int { return max(maxFooterBound+1, utf8.UTFMax*(2*stringPrefix+4)) }

// values computes the bounds of a plain array (no dictionary, not nested). It does not set nulls.
func (s *stat) values(a arrow.Array, v valid) error {
	if a.Len() == 0 {
		return nil // an empty array may have no buffers
	}
	switch a := a.(type) {
	case *array.Boolean:
		s.booleans(a, v)
	case *array.Int8:
		integers(s, a.Int8Values(), v)
	case *array.Int16:
		integers(s, a.Int16Values(), v)
	case *array.Int32:
		integers(s, a.Int32Values(), v)
	case *array.Int64:
		integers(s, a.Int64Values(), v)
	case *array.Date32:
		integers(s, a.Date32Values(), v)
	case *array.Timestamp:
		integers(s, a.TimestampValues(), v)
	case *array.Float32:
		floats(s, a.Float32Values(), v)
	case *array.Float64:
		floats(s, a.Float64Values(), v)
	case *array.Decimal128:
		values, t := a.Values(), a.DataType().(*arrow.Decimal128Type)
		v.runs(len(values), func(from, to int) {
			for _, x := range values[from:to] {
				s.decimal(x)
			}
		})
		// A value with too many digits must be refused here, because the Parquet writer would silently drop its high bytes.
		if s.seen && (!s.minDec.FitsInPrecision(t.Precision) || !s.maxDec.FitsInPrecision(t.Precision)) {
			return fmt.Errorf("a decimal has more than %d digits", t.Precision)
		}
	case *array.String:
		s.texts(a.ValueOffsets(), a.ValueBytes(), v)
	case *array.Binary:
		s.texts(a.ValueOffsets(), a.ValueBytes(), v)
	default:
		return fmt.Errorf("no bounds for an array of %s", a.DataType())
	}
	return nil
}

func (s *stat) booleans(a *array.Boolean, v valid) {
	all, ones := 0, 0
	bitmap, off := a.Data().Buffers()[1].Bytes(), a.Data().Offset()
	v.runs(a.Len(), func(from, to int) {
		all += to - from
		ones += bitutil.CountSetBits(bitmap, off+from, to-from)
	})
	if s.seen = all > 0; !s.seen {
		return
	}
	s.minInt, s.maxInt = 0, 1
	if ones == all {
		s.minInt = 1
	}
	if ones == 0 {
		s.maxInt = 0
	}
}

func integers[T ~int8 | ~int16 | ~int32 | ~int64](s *stat, values []T, v valid) {
	var lo, hi T
	v.runs(len(values), func(from, to int) {
		if !s.seen {
			lo, hi, s.seen = values[from], values[from], true
		}
		l, h := lo, hi
		for _, x := range values[from:to] {
			l, h = min(l, x), max(h, x)
		}
		lo, hi = l, h
	})
	s.minInt, s.maxInt = int64(lo), int64(hi)
}

func floats[T ~float32 | ~float64](s *stat, values []T, v valid) {
	lo, hi := T(math.Inf(1)), T(math.Inf(-1))
	v.runs(len(values), func(from, to int) {
		for _, x := range values[from:to] {
			if x != x {
				s.nan = true
				continue
			}
			s.seen = true
			if x < lo {
				lo = x
			}
			if x > hi {
				hi = x
			}
		}
	})
	s.minFloat, s.maxFloat = float64(lo), float64(hi)
}

// texts adds the valid values of a text array to the bounds. offsets are those of the array, and text begins at the
// first of them.
func (s *stat) texts(offsets []int32, text []byte, v valid) {
	v.runs(len(offsets)-1, func(from, to int) {
		at := offsets[from] - offsets[0]
		for _, end := range offsets[from+1 : to+1] {
			end -= offsets[0]
			s.bytes(text[at:end])
			at = end
		}
	})
}

// footer returns the Parquet statistics of a column chunk: its nulls and its bounds in Parquet's plain encoding.
// Floats get no bounds: Parquet bounds ignore NaN, and readers would then skip rows that hold one. Columns with
// [NoBounds] get none, either.
func (s *stat) footer(c *column) metadata.EncodedStatistics {
	var e metadata.EncodedStatistics
	e.SetNullCount(s.nulls)
	if !s.seen || c.statistics == NoBounds {
		return e
	}
	switch c.kind {
	case kindBool:
		e.SetMin([]byte{byte(s.minInt)}).SetMax([]byte{byte(s.maxInt)})
		e.Signed = true // old readers use other fields for the bounds
	case kindInt, kindDate, kindTimestamp:
		wide := c.kind == kindTimestamp || c.typ.ID() == arrow.INT64
		e.SetMin(little(s.minInt, wide)).SetMax(little(s.maxInt, wide))
		e.Signed = true
	case kindDecimal:
		precision := c.typ.(*arrow.Decimal128Type).Precision
		e.SetMin(decimalBytes(s.minDec, precision)).SetMax(decimalBytes(s.maxDec, precision))
		e.Signed = precision <= maxInt64Digits
	case kindString, kindBinary:
		// Both or none: some readers take a missing bound beside one that exists for the empty text.
		if fits(s.minBytes, c.kind) && fits(s.maxBytes, c.kind) {
			e.SetMin(s.minBytes).SetMax(s.maxBytes)
		}
	case kindFloat, kindStruct, kindList, kindMap:
	}
	return e
}

func fits(bound []byte, k kind) bool {
	return len(bound) <= maxFooterBound && (k == kindBinary || utf8.Valid(bound))
}

func little(x int64, wide bool) []byte {
	if wide {
		return binary.LittleEndian.AppendUint64(nil, uint64(x))
	}
	return binary.LittleEndian.AppendUint32(nil, uint32(int32(x)))
}

// Decimal digits that Parquet's integers hold. Longer decimals are big-endian byte arrays of fixed length.
const (
	maxInt32Digits = 9
	maxInt64Digits = 18
)

func decimalBytes(x decimal128.Num, precision int32) []byte {
	if precision <= maxInt64Digits {
		return little(int64(x.LowBits()), precision > maxInt32Digits)
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(x.HighBits()))
	b = binary.BigEndian.AppendUint64(b, x.LowBits())
	return b[len(b)-int(pqarrow.DecimalSize(precision)):]
}
