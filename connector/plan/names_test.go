package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
)

func TestIgnoredNames(t *testing.T) {
	lane, other := IgnoredNames{}, IgnoredNames{}
	lane.Add("orders", []string{"b", "a"}, false)
	lane.Add("orders", nil, false)
	other.Add("orders", []string{"c", "b"}, false)
	other.Add("refunds", []string{"x"}, true)
	lane.Merge(other)
	lane.Merge(nil)
	want := []connector.IgnoredFields{{Topic: "orders", Names: []string{"a", "b", "c"}}, {Topic: "refunds", Names: []string{"x"}, More: true}}
	if diff := cmp.Diff(want, lane.fields()); diff != "" {
		t.Error(diff)
	}
	for i := range 3 * connector.MaxIgnoredNames {
		lane.Add("orders", []string{fmt.Sprintf("field %d", i)}, false)
	}
	if f := lane.fields()[0]; len(f.Names) != connector.MaxIgnoredNames || !f.More {
		t.Errorf("%d names, more: %v", len(f.Names), f.More)
	}
	if f := (IgnoredNames{}).fields(); f != nil {
		t.Errorf("%v without a name", f)
	}
}
