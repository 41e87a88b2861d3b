package commit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/reliability/hold"
)

// boundsLog is a Log with prepared answers: each call of Bounds returns the next one, and calls after the last answer
// return it again.
type boundsLog struct {
	connector.Log
	answers []func(at []connector.Position) (map[connector.Partition]connector.Bounds, error)
}

func (l *boundsLog) Bounds(_ context.Context, at []connector.Position) (map[connector.Partition]connector.Bounds, error) {
	answer := l.answers[0]
	if len(l.answers) > 1 {
		l.answers = l.answers[1:]
	}
	return answer(at)
}

// TestFindings_TwoReadingsAtOneLeader: a finding about a position stops its claim only if a second reading of the
// bounds, under the same leader epoch, shows the same. If the claim is paused, or held for the same reason already, one
// reading is enough.
func TestFindings_TwoReadingsAtOneLeader(t *testing.T) {
	type answer struct {
		end   int64
		epoch int32
	}
	for name, c := range map[string]struct {
		answers []answer
		claim   ResumeRequest
		want    hold.Reason
		after   time.Duration
	}{
		"nothing is found":                     {[]answer{{10, 1}}, ResumeRequest{}, "", 0},
		"it shows again":                       {[]answer{{5, 1}, {5, 1}}, ResumeRequest{}, hold.AheadOfLogEnd, 5 * time.Second},
		"it shows once":                        {[]answer{{5, 1}, {10, 1}}, ResumeRequest{}, "", 5 * time.Second},
		"another leader learns its end late":   {[]answer{{5, 1}, {5, 2}, {10, 2}}, ResumeRequest{}, "", 10 * time.Second},
		"it shows twice at the new leader":     {[]answer{{5, 1}, {5, 2}, {5, 2}}, ResumeRequest{}, hold.AheadOfLogEnd, 10 * time.Second},
		"the leader keeps changing":            {[]answer{{5, 1}, {5, 2}, {5, 3}, {5, 4}, {10, 5}}, ResumeRequest{}, hold.KafkaDown, 15 * time.Second},
		"the claim is held for it already":     {[]answer{{5, 1}, {10, 1}}, ResumeRequest{Held: hold.AheadOfLogEnd}, hold.AheadOfLogEnd, 0},
		"the claim is held for something else": {[]answer{{5, 1}, {10, 1}}, ResumeRequest{Held: hold.Truncated}, "", 5 * time.Second},
		"the claim is paused":                  {[]answer{{5, 1}, {10, 1}}, ResumeRequest{Paused: true}, hold.AheadOfLogEnd, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, log := connectortest.Partition(0), &boundsLog{}
				for _, a := range c.answers {
					log.answers = append(log.answers, func([]connector.Position) (map[connector.Partition]connector.Bounds, error) {
						return map[connector.Partition]connector.Bounds{p: {LastStable: a.end, HighWatermark: a.end, LeaderEpoch: a.epoch, DivergedAt: -1}}, nil
					})
				}
				began, result := time.Now(), map[connector.Partition]Found{}
				if err := writerOf(Config{Log: log}, connector.Target{}, nil).resolver.findings(t.Context(), []connector.Position{{Partition: p, Next: 10, Epoch: -1}}, map[connector.Partition]ResumeRequest{p: c.claim}, result); err != nil {
					t.Fatal(err)
				}
				got := hold.Reason("")
				if h := result[p].Hold; h != nil {
					got = h.Reason
				}
				if got != c.want || time.Since(began) != c.after {
					t.Errorf("%q after %v, want %q after %v", got, time.Since(began), c.want, c.after)
				}
			})
		})
	}
}

// TestFindings_PartitionWithoutLeader: if a partition has no leader, the bounds of the other partitions are used, each
// hold has the cause of its own partition, and the cluster does not count as down.
func TestFindings_PartitionWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fine, leaderless, denied, gone := connectortest.Partition(0), connectortest.Partition(1), connectortest.Partition(2), connectortest.Partition(3)
		log := &boundsLog{answers: []func([]connector.Position) (map[connector.Partition]connector.Bounds, error){func(at []connector.Position) (map[connector.Partition]connector.Bounds, error) {
			bounds, unread := map[connector.Partition]connector.Bounds{}, &connector.UnreadError{Causes: map[connector.Partition]error{}}
			for _, pos := range at {
				switch pos.Partition {
				case fine:
					bounds[fine] = connector.Bounds{LastStable: 10, HighWatermark: 10, DivergedAt: -1}
				case leaderless:
					unread.Causes[leaderless] = classify.Mark(errors.New("no leader"), classify.Transient)
				case denied:
					unread.Causes[denied] = hold.New(hold.KafkaDenied, "not for you", nil)
				}
			}
			if len(unread.Causes) == 0 {
				return bounds, nil
			}
			return bounds, classify.Mark(unread, classify.Transient)
		}}}
		w := writerOf(Config{Log: log}, connector.Target{}, nil)
		claims := map[connector.Partition]ResumeRequest{fine: {}, leaderless: {}, denied: {}, gone: {}}
		began := time.Now()
		for range 10 {
			result := map[connector.Partition]Found{}
			if err := w.resolver.findings(t.Context(), []connector.Position{{Partition: fine, Next: 10, Epoch: -1}, {Partition: leaderless, Next: 10, Epoch: -1}, {Partition: denied, Next: 10, Epoch: -1}, {Partition: gone, Next: 10, Epoch: -1}}, claims, result); err != nil {
				t.Fatal(err)
			}
			for p, want := range map[connector.Partition]hold.Reason{fine: "", leaderless: hold.KafkaDown, denied: hold.KafkaDenied, gone: hold.TopicRecreated} {
				got := hold.Reason("")
				if h := result[p].Hold; h != nil {
					got = h.Reason
				}
				if got != want {
					t.Errorf("%v: held for %q, want %q", p, got, want)
				}
			}
		}
		if took := time.Since(began); took != 10*confirmAfter {
			t.Errorf("ten resumes took %v, want that of the second readings: the writer waits for a leader", took)
		}
		if s := w.resolver.kafka.guard.Status(); s.Open || !s.Failing.IsZero() {
			t.Errorf("a missing leader counts as a failure of the cluster: %+v", s)
		}
	})
}

// TestUnreadError_NamesWhatPasses: if the bounds of several partitions could not be read, the error names and unwraps a
// transient cause rather than one that an operator must end.
func TestUnreadError_NamesWhatPasses(t *testing.T) {
	denied := hold.New(hold.KafkaDenied, "not for you", nil)
	passing := classify.Mark(errors.New("no leader"), classify.Transient)
	e := &connector.UnreadError{Causes: map[connector.Partition]error{connectortest.Partition(0): denied, connectortest.Partition(1): passing}}
	if want := "failed to read the log ends of 2 partitions, among them orders:1: no leader"; e.Error() != want || classify.Of(e) != classify.Transient {
		t.Errorf("%v is %v, want %q", e, classify.Of(e), want)
	}
	delete(e.Causes, connectortest.Partition(1))
	if reason, _, held := hold.Of(e); !held || reason != hold.KafkaDenied || classify.Of(e) != classify.Fatal {
		t.Errorf("%v is %v, %v", e, classify.Of(e), reason)
	}
}
