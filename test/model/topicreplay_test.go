package model

import "testing"

var (
	topicReplays = TopicReplay{Intents: 3, Copies: 2, Letters: 2, Repeats: true}
	manyIntents  = TopicReplay{Intents: 4, Copies: 2, Letters: 1, Repeats: true}
	manyCopies   = TopicReplay{Intents: 2, Copies: 4, Letters: 2, Repeats: true}
	besideDirect = TopicReplay{Intents: 3, Copies: 2, Letters: 1, Directs: true}
	fewCopies    = TopicReplay{Intents: 3, Copies: 2, Letters: 2}
	discards     = TopicReplay{Intents: 3, Copies: 2, Letters: 1, Discards: 1, Directs: true}
)

// TestTopicReplay visits every state of replays through the topic, and expects no violation.
func TestTopicReplay(t *testing.T) {
	for name, w := range map[string]TopicReplay{"Repeats": topicReplays, "ManyIntents": manyIntents, "ManyCopies": manyCopies, "BesideDirect": besideDirect, "Discards": discards} {
		t.Run(name, func(t *testing.T) {
			if r := search(t, w); !r.Exhausted || r.Bad != "" {
				t.Error("not proved")
			}
		})
	}
}

func TestTopicReplayMutants(t *testing.T) {
	for name, m := range map[string]struct {
		rule TopicRule
		in   TopicReplay
		bad  string
	}{
		"OriginUnchecked":    {OriginUnchecked, topicReplays, letterTwice},
		"AcceptedLater":      {AcceptedLater, topicReplays, releasedHasRow},
		"GapAccepted":        {GapAccepted, topicReplays, replayedNoRow},
		"ClosedIsUnknown":    {ClosedIsUnknown, topicReplays, releasedHasRow},
		"ProducedUnopened":   {ProducedUnopened, topicReplays, letterTwice},
		"WithdrawnUnchecked": {WithdrawnUnchecked, topicReplays, releasedHasRow},
		"WithdrawnByLog":     {WithdrawnByLog, topicReplays, releasedHasRow},
		"ClosedWhenProduced": {ClosedWhenProduced, topicReplays, replayedNoRow},
		"DirectBesideTopic":  {DirectBesideTopic, besideDirect, letterTwice},
		"TopicBesideTopic":   {TopicBesideTopic, fewCopies, neverEnds},
		"DiscardedInTopic":   {DiscardedInTopic, discards, discardedRow},
		"ReplayedUnsettled":  {ReplayedUnsettled, besideDirect, letterTwice},
	} {
		t.Run(name, func(t *testing.T) {
			m.in.Rule = m.rule
			if r := search(t, m.in); r.Bad != m.bad {
				t.Errorf("found %q, want %q", r.Bad, m.bad)
			}
		})
	}
}
