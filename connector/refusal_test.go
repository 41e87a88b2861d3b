package connector

import (
	"errors"
	"fmt"
	"testing"

	"sluice/classify"
	"sluice/reliability/deadletter"
)

func TestRefusals(t *testing.T) {
	key, value, none := []byte("k"), []byte("v"), []byte{}
	for _, c := range []struct {
		refuse Refusals
		record Record
		want   deadletter.Reason // "" if the record is not refused
	}{
		{Refusals{}, Record{}, ""},
		{Refusals{}, Record{Key: key, Value: value}, ""},
		{Refusals{NullKeys: true}, Record{Key: key}, ""},
		{Refusals{NullKeys: true}, Record{Key: none, Value: value}, ""}, // an empty key is not null
		{Refusals{NullKeys: true}, Record{Value: value}, deadletter.NullKey},
		{Refusals{NullKeys: true}, Record{}, deadletter.NullKey},
		{Refusals{Tombstones: TombstonesRefused}, Record{Value: value}, ""},
		{Refusals{Tombstones: TombstonesRefused}, Record{Value: none}, ""}, // an empty value is not null; the decoder refuses it later
		{Refusals{Tombstones: TombstonesRefused}, Record{Key: key}, deadletter.Tombstone},
		{Refusals{NullKeys: true, Tombstones: TombstonesRefused}, Record{Key: key}, deadletter.Tombstone},
		{Refusals{NullKeys: true, Tombstones: TombstonesRefused}, Record{}, deadletter.NullKey},
		{Refusals{Tombstones: TombstoneRows}, Record{Key: key}, ""},
		{Refusals{NullKeys: true, Tombstones: TombstoneRows}, Record{}, deadletter.NullKey},
	} {
		err := c.refuse.Of(&c.record)
		switch {
		case c.want == "":
			if err != nil {
				t.Errorf("%+v %+v: %v", c.refuse, c.record, err)
			}
		case classify.Of(err) != classify.Poison || CodeOf(err) != c.want || CodeOf(fmt.Errorf("row: %w", err)) != c.want:
			t.Errorf("%+v %+v: %v, want %s", c.refuse, c.record, err, c.want)
		}
	}
	if got := CodeOf(errors.New("anything")); got != deadletter.Unspecified {
		t.Error(got)
	}
}

// TestRefusals_LeaveOut: no row is made of a tombstone unless the topic makes rows of them. An empty value is no
// tombstone.
func TestRefusals_LeaveOut(t *testing.T) {
	for policy, want := range map[Tombstones]bool{TombstonesSkipped: true, TombstonesRefused: true, TombstoneRows: false} {
		f := Refusals{Tombstones: policy}
		if got := f.LeaveOut(&Record{Key: []byte("k")}); got != want {
			t.Errorf("policy %d leaves a tombstone out: %t, want %t", policy, got, want)
		}
		if f.LeaveOut(&Record{Value: []byte{}}) || f.LeaveOut(&Record{Value: []byte("v")}) {
			t.Errorf("policy %d leaves out a record with a value", policy)
		}
	}
}
