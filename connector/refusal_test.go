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
		{Refusals{Tombstones: true}, Record{Value: value}, ""},
		{Refusals{Tombstones: true}, Record{Value: none}, ""}, // an empty value is not null; the decoder refuses it later
		{Refusals{Tombstones: true}, Record{Key: key}, deadletter.Tombstone},
		{Refusals{NullKeys: true, Tombstones: true}, Record{Key: key}, deadletter.Tombstone},
		{Refusals{NullKeys: true, Tombstones: true}, Record{}, deadletter.NullKey},
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
