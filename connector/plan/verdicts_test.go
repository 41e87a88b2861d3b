package plan

import (
	"testing"

	"sluice/connector"
)

func TestVerdicts_Passed(t *testing.T) {
	a, b := connector.Partition{Topic: "orders"}, connector.Partition{Topic: "orders", ID: 1}
	var i Verdicts
	if i.For(a) != nil {
		t.Error("verdicts before the first one")
	}
	i.Passed(map[connector.Partition]Span{a: {Next: 5}})
	before := i.For(a)
	i.Add(a, 3, Verdict{Retries: 1})
	i.Add(a, 7, Verdict{Retries: 2})
	i.Add(b, 3, Verdict{Retries: 3})
	if before != nil || len(i.For(a)) != 2 || i.For(a)[7].Retries != 2 || i.For(b)[3].Retries != 3 {
		t.Errorf("%v, %v", i.For(a), i.For(b))
	}
	seen := i.For(a)
	i.Passed(map[connector.Partition]Span{a: {Next: 7}})
	if len(i.For(a)) != 1 || len(i.For(b)) != 1 || len(seen) != 2 {
		t.Errorf("%v, %v; an earlier reader sees %v", i.For(a), i.For(b), seen)
	}
	i.Passed(map[connector.Partition]Span{a: {Next: 8}, b: {Next: 4}})
	if i.of.Load() != nil {
		t.Error("the map is empty but not removed")
	}
}
