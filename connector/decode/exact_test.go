package decode

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestScale: scale agrees with math/big about numbers of up to 60 digits with points, exponents and zeros in all
// places, and round about each kind of what was cut off.
func TestScale(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	digits := func(n int) string {
		var b strings.Builder
		for range n {
			if r.IntN(3) == 0 {
				b.WriteByte('0')
			} else {
				b.WriteByte('0' + byte(r.IntN(10)))
			}
		}
		return b.String()
	}
	large, cut := 0, [aboveHalf + 1]int{}
	for range 40_000 {
		text := "0"
		if r.IntN(4) > 0 {
			text = fmt.Sprint(1+r.IntN(9)) + digits(r.IntN(30))
		}
		if r.IntN(2) == 0 {
			text += "." + []string{"", "5", "49999", "50"}[r.IntN(4)] + digits(1+r.IntN(30))
		}
		if r.IntN(4) == 0 {
			text += ".5"[:2*(1-strings.Count(text, "."))]
		}
		if r.IntN(2) == 0 {
			text += fmt.Sprintf("e%+d", r.IntN(60)-30)
		}
		if r.IntN(2) == 0 {
			text = "-" + text
		}
		shift := r.IntN(42) - 3
		b := padded(text)
		x, end, ok := scanNumber(b, 0)
		if !ok || end != len(text) {
			t.Fatalf("%s: no number", text)
		}
		s := x.scale(b, 0, shift)
		want, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatal(text)
		}
		power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil))
		if shift < 0 {
			power.Inv(power)
		}
		want.Mul(want, power)
		whole, remainder := new(big.Int).QuoRem(new(big.Int).Abs(want.Num()), want.Denom(), new(big.Int))
		if s.overflow != (whole.BitLen() > 128) {
			t.Fatalf("%s by %d: overflow is %t", text, shift, s.overflow)
		}
		if s.overflow {
			large++
			continue
		}
		got := new(big.Int).SetUint64(s.hi)
		got.Lsh(got, 64).Add(got, new(big.Int).SetUint64(s.lo))
		wantRest := nothing
		if remainder.Sign() != 0 {
			wantRest = half + rest(remainder.Lsh(remainder, 1).Cmp(want.Denom())) // -1 wraps to belowHalf
		}
		if got.Cmp(whole) != 0 || s.rest != wantRest || s.negative != strings.HasPrefix(text, "-") {
			t.Fatalf("%s by %d: %d and %d, want %d and %d", text, shift, got, s.rest, whole, wantRest)
		}
		cut[s.rest]++
		for _, f := range []Fraction{RoundFraction, TruncateFraction} {
			v, step := s, new(big.Rat).Set(want)
			if f == RoundFraction {
				step.Add(step, big.NewRat(1, 2))
			}
			down := new(big.Int).Div(step.Num(), step.Denom())
			if !v.round(f) || down.CmpAbs(new(big.Int).Lsh(big.NewInt(1), 126)) >= 0 {
				continue // the test's own number of 128 bits would overflow
			}
			hi, lo := v.words()
			rounded := new(big.Int).SetInt64(int64(hi))
			if rounded.Lsh(rounded, 64).Add(rounded, new(big.Int).SetUint64(lo)).Cmp(down) != 0 {
				t.Fatalf("%s by %d, rounded by %d: %d, want %d", text, shift, f, rounded, down)
			}
		}
		if v := s; v.round(RefuseFraction) != (s.rest == nothing) {
			t.Fatalf("%s by %d: not refused", text, shift)
		}
	}
	if large < 1000 || slices.Min(cut[:]) < 20 {
		t.Errorf("the property was not tried: %d too large, %v", large, cut)
	}
}

// TestScale_LongExponents: exponents of any size are read without work in proportion to them.
func TestScale_LongExponents(t *testing.T) {
	d := open(t, parse(t, "d decimal(38,10), i bigint"), JSON{}, maxDistinct)
	for _, c := range []struct {
		value string
		why   Reason
	}{
		{`{"d":0e99999999999999999999,"i":0e-99999999999999999999}`, 0},
		{`{"d":0.000e2147483647}`, 0},
		{`{"d":1e99999999999999999999}`, OutOfRange},
		{`{"d":1e-99999999999999999999}`, TooPrecise},
		{`{"d":` + strings.Repeat("9", 100_000) + `}`, OutOfRange},
		{`{"d":0.` + strings.Repeat("0", 100_000) + `1e100001}`, 0},
		{`{"d":1` + strings.Repeat("0", 100_000) + `e-100000}`, 0},
		{`{"d":0.` + strings.Repeat("0", 100_000) + `}`, 0},
	} {
		err := d.addValue([]byte(c.value))
		if c.why != 0 {
			checkError(t, err, c.why, "d")
		} else if err != nil {
			t.Errorf("%.40s: %v", c.value, err)
		}
	}
	d.Seal().Release()
}
