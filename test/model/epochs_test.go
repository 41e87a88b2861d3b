package model

import "testing"

var (
	elections = Epochs{Elections: 2, Poison: -1}
	poisonous = Epochs{Elections: 2, Poison: 2}
)

// TestEpochs visits every state of a partition whose new leaders lack records, and expects no violation.
func TestEpochs(t *testing.T) {
	for name, w := range map[string]Epochs{"Elections": elections, "Poisonous": poisonous} {
		t.Run(name, func(t *testing.T) {
			if r := search(t, w); !r.Exhausted || r.Bad != "" {
				t.Error("not proved")
			}
		})
	}
}

func TestEpochMutants(t *testing.T) {
	for name, m := range map[string]struct {
		rule EpochRule
		in   Epochs
		bad  string
	}{
		"EpochOfGroupOffset": {EpochOfGroupOffset, elections, pastTruncation},
		"NoLastFetchedEpoch": {NoLastFetchedEpoch, elections, pastTruncation},
		"ResumeUnchecked":    {ResumeUnchecked | NoLastFetchedEpoch, elections, pastTruncation},
		"EpochOfBatchEnd":    {EpochOfBatchEnd, poisonous, falseTruncated},
		"EpochOfPoison":      {EpochOfPoison, poisonous, falseTruncated},
		"EpochUnknown":       {EpochUnknown, poisonous, pastTruncation},
	} {
		t.Run(name, func(t *testing.T) {
			m.in.Rule = m.rule
			if r := search(t, m.in); r.Bad != m.bad {
				t.Errorf("found %q, want %q", r.Bad, m.bad)
			}
		})
	}
}
