//nolint:gosec // G115: bits of numbers are moved into words on purpose.
package datafile

import (
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/compress"
)

const (
	// sampleSize is the number of values of a column that are examined to choose its encoding.
	sampleSize = 4096
	// repeating is the share of distinct values in a sample below which the column gets a dictionary.
	repeating = 0.85
	// compressible is the ratio of the compressed to the plain size of a sample below which the column is compressed.
	compressible = 0.9
)

// sample examines some values of a column. It is for one goroutine.
type sample struct {
	set  []uint64 // hash table of hashes with open addressing
	full []bool
	out  []byte
}

func newSample() *sample {
	return &sample{set: make([]uint64, 4*sampleSize), full: make([]bool, 4*sampleSize)}
}

// chooseFloat returns the encoding of a column of floats. Values that repeat get a dictionary. Others are plain, and
// are compressed only if that makes a sample of them smaller: compression of random floats would cost four times as
// much and save nothing.
//
// A column with -0.0 gets no dictionary. parquet-mr, with which Spark reads, skips a row group if the value of a
// predicate is not in its dictionary, and there it tells -0.0 from 0.0: the predicate x = 0.0 would miss rows with -0.0.
func (e *encoder) chooseFloat(a arrow.Array, v valid) choice {
	n := a.Len()
	if n == 0 {
		return choiceOf(kindFloat)
	}
	var at func(i int) uint64
	var raw []byte
	var negativeZero func() bool
	switch a := a.(type) {
	case *array.Float64:
		values := a.Float64Values()
		at = func(i int) uint64 { return math.Float64bits(values[i]) }
		raw = arrow.Float64Traits.CastToBytes(values[:min(n, sampleSize)])
		negativeZero = func() bool { return slices.ContainsFunc(values, isNegativeZero[float64]) }
	case *array.Float32:
		values := a.Float32Values()
		at = func(i int) uint64 { return uint64(math.Float32bits(values[i])) }
		raw = arrow.Float32Traits.CastToBytes(values[:min(n, sampleSize)])
		negativeZero = func() bool { return slices.ContainsFunc(values, isNegativeZero[float32]) }
	}
	if e.share.sample.repeats(n, v, at) && !negativeZero() {
		return choiceDictionary
	}
	c := choiceOf(kindFloat)
	c.plain = !e.share.sample.compresses(raw)
	return c
}

// isNegativeZero reports whether x is -0.0.
func isNegativeZero[T float32 | float64](x T) bool { return x == 0 && math.Signbit(float64(x)) }

// repeats reports whether the share of distinct values in a sample is below repeating. It samples at equal distances
// from first to last, because neighbors are alike in sorted columns.
func (s *sample) repeats(n int, v valid, at func(i int) uint64) bool {
	clear(s.full)
	mask := uint64(len(s.set) - 1)
	seen, distinct := 0, 0
	for i, step := 0, max(1, n/sampleSize); i < n && seen < sampleSize; i += step {
		if !v.has(i) {
			continue
		}
		seen++
		x := at(i)
		h := x * 0x9E3779B97F4A7C15
		slot := (h ^ h>>32) & mask
		for s.full[slot] && s.set[slot] != x {
			slot = (slot + 1) & mask
		}
		if !s.full[slot] {
			s.full[slot], s.set[slot] = true, x
			distinct++
		}
	}
	return float64(distinct) < repeating*float64(seen)
}

func (s *sample) compresses(raw []byte) bool {
	codec, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		return true
	}
	if need := int(codec.CompressBound(int64(len(raw)))); cap(s.out) < need {
		s.out = make([]byte, need)
	}
	out := codec.EncodeLevel(s.out[:cap(s.out)], raw, zstdLevel)
	return float64(len(out)) < compressible*float64(len(raw))
}
