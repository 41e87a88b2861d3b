package offsets_test

import (
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/idempotency/offsets"
)

func TestSet(t *testing.T) {
	s := offsets.Of(20, 12, 13, 15, 14, 13, 0, -1, math.MaxInt64)
	if d := cmp.Diff([]int64{0, 12, 13, 14, 15, 20}, slices.Collect(s.All())); d != "" {
		t.Error(d)
	}
	if s.Len() != 6 || s.End() != 21 || s.String() != "0,12-15,20" {
		t.Errorf("%d offsets to %d: %s", s.Len(), s.End(), s)
	}
	for offset, want := range map[int64]bool{-1: false, 0: true, 1: false, 11: false, 12: true, 15: true, 16: false, 20: true, 21: false} {
		if s.Has(offset) != want {
			t.Errorf("%d: %v", offset, !want)
		}
	}
	var none offsets.Set
	if none.Len() != 0 || none.End() != 0 || none.String() != "" || none.Has(0) || !none.Equal(offsets.Of()) {
		t.Errorf("the zero value is not empty: %v", none)
	}
}

// TestSet_Operations compares the operations on random sets with the same operations on maps.
func TestSet_Operations(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b := map[int64]bool{}, map[int64]bool{}
		for range random.IntN(40) {
			a[random.Int64N(60)] = true
			b[random.Int64N(60)+random.Int64N(2)*1000] = true
		}
		setA, setB := offsets.Of(slices.Collect(maps.Keys(a))...), offsets.Of(slices.Collect(maps.Keys(b))...)
		both, without, within := maps.Clone(a), maps.Clone(a), map[int64]bool{}
		maps.Copy(both, b)
		for offset := range b {
			delete(without, offset)
			if a[offset] {
				within[offset] = true
			}
		}
		for name, c := range map[string]struct {
			got  offsets.Set
			want map[int64]bool
		}{
			"union": {offsets.Union(setA, setB), both}, "without": {setA.Without(setB), without}, "within": {setA.Within(setB), within},
		} {
			if d := cmp.Diff(slices.Sorted(maps.Keys(c.want)), slices.Collect(c.got.All())); d != "" || c.got.Len() != int64(len(c.want)) {
				t.Fatalf("%s of %v and %v: %d offsets (-want +got):\n%s", name, setA, setB, c.got.Len(), d)
			}
		}
		encoded, err := json.Marshal(setA)
		if err != nil {
			t.Fatal(err)
		}
		var back offsets.Set
		if err := json.Unmarshal(encoded, &back); err != nil || !back.Equal(setA) || back.Len() != setA.Len() {
			t.Fatalf("%s: %v %v", encoded, back, err)
		}
	}
}

func TestParse_Malformed(t *testing.T) {
	for _, text := range []string{
		",", "1,", ",1", "1,,2", "-", "1-", "-1", "2-1", "1-1", "1,1", "1,2", "1-3,4", "3,1", "1-3,2", "01", "+1", " 1", "a", "1-2-3",
		"9223372036854775807", "1-9223372036854775807", "9223372036854775808",
	} {
		if s, err := offsets.Parse(text); err == nil {
			t.Errorf("%q: %v", text, s)
		}
	}
	var s offsets.Set
	if err := json.Unmarshal([]byte("12"), &s); err == nil {
		t.Error("a number is no set")
	}
}

// FuzzParse: Parse accepts only texts that String returns for the parsed set.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "0", "12-15,20", "1,3-9223372036854775806", "1-1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := offsets.Parse(text); err == nil && s.String() != text {
			t.Errorf("%q is read as %q", text, s)
		}
	})
}
