package gen

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/reliability/deadletter"
)

// code returns the reason code with which the product refuses a record under a policy, or "" if it accepts the record.
func code(t *testing.T, s *schema.Schema, p Policy, rec Record) string {
	t.Helper()
	r := &connector.Record{Key: rec.Key, Value: rec.Value, Timestamp: rec.Time}
	err := connector.Refusals{NullKeys: p.Keys, Tombstones: p.Tombstones}.Of(r)
	if err == nil && r.Value == nil {
		return ""
	}
	if err == nil {
		b, broken := decode.JSON{Strict: p.Strict}.Builder(s)
		if broken != nil {
			t.Fatal(broken)
		}
		if err = b.Add(connector.Partition{Topic: "orders"}, r); err == nil {
			b.Seal().Release()
			return ""
		}
	}
	return string(connector.CodeOf(err))
}

func columns(t *testing.T) *schema.Schema {
	t.Helper()
	s, err := schema.ParseDDL(DDL)
	if err != nil {
		t.Fatal(err)
	}
	return s.WithKafkaColumns()
}

// TestPoisons expects a record of each kind to be refused with the kind's code, under every policy to which the kind
// applies; large kinds only under one policy. Together the kinds must cover all codes that depend on the record alone.
func TestPoisons(t *testing.T) {
	s := columns(t)
	left := decode.Codes()
	for _, p := range Poisons {
		for n := range 8 {
			policy := Policy{Strict: n&1 != 0, Keys: n&2 != 0, Tombstones: n&4 != 0}
			if !p.applies(policy) || p.Large && n > 0 {
				continue
			}
			rec := p.Spoil(Orders{Seed: 7}, int64(n))
			if got := code(t, s, policy, rec); got != p.Code || rec.Code != p.Code {
				t.Errorf("%+v: got %q, want %q: %.300s", policy, got, p.Code, rec.Value)
			}
		}
		left = slices.DeleteFunc(left, func(c deadletter.Reason) bool { return string(c) == p.Code })
	}
	// No column of the orders is binary.
	want := []deadletter.Reason{deadletter.Isolated, deadletter.RetriesExhausted, deadletter.BadPartition, deadletter.Unspecified, "bad_binary"}
	if d := cmp.Diff(want, left); d != "" {
		t.Errorf("codes without a kind (-want +got):\n%s", d)
	}
}

// TestBadShare expects about a tenth of the records to be bad under each policy. They must have every code of the kinds
// that are not large, and the other records must be good.
func TestBadShare(t *testing.T) {
	s := columns(t)
	for n := range 8 {
		policy := Policy{Strict: n&1 != 0, Keys: n&2 != 0, Tombstones: n&4 != 0}
		orders := Orders{Seed: 3, Span: 2000, Odd: 200, Bad: 100, Policy: policy}
		bad, kinds := 0, map[string]bool{}
		for i := range int64(2000) {
			rec := orders.Record(i)
			if got := code(t, s, policy, rec); got != rec.Code {
				t.Fatalf("%+v: record %d got %q, want %q: %s", policy, i, got, rec.Code, rec.Value)
			}
			if rec.Code != "" {
				bad++
				kinds[rec.Code] = true
			}
		}
		want := map[string]bool{}
		for _, p := range Poisons {
			if p.applies(policy) && !p.Large {
				want[p.Code] = true
			}
		}
		if d := cmp.Diff(want, kinds); d != "" || bad < 150 || bad > 250 {
			t.Errorf("%+v: %d bad of 2000, kinds (-want +got):\n%s", policy, bad, d)
		}
	}
}

func TestRawSeesKeyAndValue(t *testing.T) {
	seen := map[string]bool{}
	for _, rec := range []Record{
		{}, {Key: []byte{}}, {Value: []byte{}}, {Key: []byte("a"), Value: []byte("b")}, {Key: []byte("ab")}, {Value: []byte("ab")}, {Code: "x"},
	} {
		if raw := rec.Raw(); seen[raw] {
			t.Errorf("%+v is like another one: %s", rec, raw)
		} else {
			seen[raw] = true
		}
	}
}
