package story_test

import (
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// standing has the fields of a claim's status that say how far it has come. Times are relative to the start of the
// scenario, in whole seconds; -1 for none.
type standing struct {
	position, consumed               int64
	waiting, oldest, newest, brought time.Duration
}

// clock measures time since the start of a scenario.
type clock struct{ began time.Time }

func (c clock) since(at time.Time) time.Duration {
	if at.IsZero() {
		return -1
	}
	return at.Sub(c.began).Truncate(time.Second)
}

// at waits until the time d since the start of the scenario. Then it waits until the members have done all work that
// was due by then.
func (c clock) at(d time.Duration) {
	time.Sleep(time.Until(c.began.Add(d)))
	synctest.Wait()
}

func (c clock) of(p *story.Process, claim int) standing {
	s := p.Connector.Status().Claims[claim]
	return standing{s.Position, s.Consumed, c.since(s.Waiting), c.since(s.Oldest), c.since(s.Newest), c.since(s.LastRecord)}
}

func (c clock) want(t *testing.T, what string, p *story.Process, claim int, want standing) {
	t.Helper()
	if got := c.of(p, claim); got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

const none = time.Duration(-1)

// slowly is a scenario whose batches are due after a minute. set may change the harness before a member begins. play is
// called once the claims have resumed, when the clock is at 0.
func slowly(t *testing.T, partitions int, set func(h *story.Harness), play func(t *testing.T, h *story.Harness, p *story.Process, c clock)) {
	t.Helper()
	scenario(t, partitions, func(t *testing.T, h *story.Harness) {
		h.Every, h.CommitRows = time.Minute, 1000
		if set != nil {
			set(h)
		}
		p := h.Begin(t.Context())
		ids := make([]int, partitions)
		for i := range ids {
			ids[i] = i
		}
		p.Member.Assign(joined(h, ids...))
		eventually(t, "claims at work", func() bool {
			s := p.Connector.Status()
			return s.Resumed && len(s.Claims) == partitions
		})
		play(t, h, p, clock{time.Now()})
	})
}

func TestStatus_Batch(t *testing.T) {
	slowly(t, 2, nil, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		c.want(t, "before any record", p, 0, standing{0, 0, none, none, none, none})
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		c.at(10 * time.Second)
		h.Broker.Produce(story.Topic, 0, "rrc", "k")
		c.at(20 * time.Second)
		c.want(t, "open", p, 0, standing{0, 6, 0, 0, none, 10 * time.Second})
		c.want(t, "another claim of the table", p, 1, standing{0, 0, 0, none, none, none})
		c.at(70 * time.Second)
		c.want(t, "in the table", p, 0, standing{6, 6, none, none, 10 * time.Second, 10 * time.Second})
		h.Broker.Produce(story.Topic, 1, "r", "k")
		c.at(80 * time.Second)
		c.want(t, "idle", p, 0, standing{6, 6, 70 * time.Second, none, 10 * time.Second, 10 * time.Second})
		c.want(t, "open", p, 1, standing{0, 1, 70 * time.Second, 70 * time.Second, none, 70 * time.Second})
	})
}

// TestStatus_PositionsOnly has claims whose records so far are tombstones, health-check records or control records.
// Their status must not show a row that waits for a commit.
func TestStatus_PositionsOnly(t *testing.T) {
	slowly(t, 2, nil, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		h.Broker.Produce(story.Topic, 0, "thct", "k")
		h.Broker.Produce(story.Topic, 1, "c", "k")
		c.at(5 * time.Minute)
		c.want(t, "tombstones and health records", p, 0, standing{0, 4, none, none, none, 0})
		c.want(t, "nothing that a reader sees", p, 1, standing{0, 1, none, none, none, none})
		h.Broker.Produce(story.Topic, 0, "r", "k")
		c.at(5*time.Minute + 2*time.Second)
		if got := c.of(p, 0); got.waiting != none && got.waiting != 5*time.Minute {
			t.Errorf("the batch is older than its first row: %+v", got)
		}
		c.at(6 * time.Minute)
		c.want(t, "in the table", p, 0, standing{5, 5, none, none, 5 * time.Minute, 5 * time.Minute})
	})
}

func TestStatus_Letters(t *testing.T) {
	letters := func(h *story.Harness) { h.Letters = &story.LetterLog{} }
	slowly(t, 1, letters, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		h.Broker.Produce(story.Topic, 0, "pp", "k")
		c.at(10 * time.Second)
		c.want(t, "open", p, 0, standing{0, 2, 0, 0, none, 0})
		c.at(70 * time.Second)
		c.want(t, "written", p, 0, standing{2, 2, none, none, none, 0})
	})
}

// TestStatus_SealedBatch expects the status to show the age of the oldest uncommitted row, which is in the sealed batch
// while there is one.
func TestStatus_SealedBatch(t *testing.T) {
	stalled := func(h *story.Harness) {
		h.Broken = func(step string) error {
			if step == "stage" {
				time.Sleep(5 * time.Minute)
			}
			return nil
		}
	}
	slowly(t, 1, stalled, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		c.at(2 * time.Minute)
		c.want(t, "sealed", p, 0, standing{0, 3, 0, 0, none, 0})
		h.Broker.Produce(story.Topic, 0, "rr", "k")
		c.at(3 * time.Minute)
		c.want(t, "a batch behind it", p, 0, standing{0, 5, 0, 0, none, 2 * time.Minute})
		c.at(6*time.Minute + 20*time.Second)
		c.want(t, "in the table", p, 0, standing{3, 5, 2 * time.Minute, 2 * time.Minute, 0, 2 * time.Minute})
	})
}

// TestStatus_Hold expects that records after a bad record that holds the claim do not count as waiting.
func TestStatus_Hold(t *testing.T) {
	slowly(t, 2, nil, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		h.Broker.Produce(story.Topic, 0, "rr", "k")
		c.at(10 * time.Second)
		h.Broker.Produce(story.Topic, 0, "p", "k")
		c.at(20 * time.Second)
		h.Broker.Produce(story.Topic, 0, "rr", "k")
		c.at(30 * time.Second)
		c.want(t, "not found yet", p, 0, standing{0, 2, 0, 0, none, 20 * time.Second})
		c.at(2 * time.Minute)
		c.want(t, "held", p, 0, standing{2, 2, none, 10 * time.Second, 0, 20 * time.Second})
		c.at(10 * time.Minute)
		c.want(t, "held for long", p, 0, standing{2, 2, none, 10 * time.Second, 0, 20 * time.Second})
		h.Log.Append(story.Version{Commit: h.Forged(0, 3)}) // the operator skips the bad record
		eventually(t, "end", func() bool { return h.Position(0) == 5 })
		time.Sleep(time.Second)
		if got := c.of(p, 0); got.position != 5 || got.consumed != 5 || got.waiting != none || got.oldest != none || got.newest != 20*time.Second {
			t.Errorf("skipped: %+v", got)
		}
	})
}

// TestStatus_Pause expects that records read before a pause are committed, and that no record waits afterwards.
func TestStatus_Pause(t *testing.T) {
	slowly(t, 1, nil, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		c.at(10 * time.Second)
		h.Pauses.Pause(0)
		c.at(30 * time.Second)
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		c.at(time.Minute)
		c.want(t, "paused", p, 0, standing{3, 3, none, none, 0, 0})
	})
}

// TestStatus_Fence moves the position of one of two claims with uncommitted records, so that the next commit is fenced.
// The status must no longer count the records of either claim. Those of the other claim must count again once the
// member has read them again.
func TestStatus_Fence(t *testing.T) {
	slowly(t, 2, nil, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		h.Broker.Produce(story.Topic, 0, "rrrr", "k")
		c.at(10 * time.Second)
		h.Broker.Produce(story.Topic, 1, "r", "k")
		c.at(20 * time.Second)
		h.Log.Append(story.Version{Commit: h.Forged(0, 4)}) // fences the next commit
		c.at(75 * time.Second)
		c.want(t, "moved", p, 0, standing{4, 4, 60 * time.Second, none, none, 0})
		c.want(t, "read again", p, 1, standing{0, 1, 60 * time.Second, 10 * time.Second, none, 60 * time.Second})
		c.at(3 * time.Minute)
		c.want(t, "in the table", p, 1, standing{1, 1, none, none, 10 * time.Second, 60 * time.Second})
	})
}

// TestStatus_TableDown holds a claim because its table denies access. In its status the next offset to read must be the
// position again, since its records will be read again. The age of its oldest uncommitted record must not change.
func TestStatus_TableDown(t *testing.T) {
	denied := func(h *story.Harness) {
		h.Broken = func(step string) error {
			if step == "stage" {
				return hold.New(hold.StoreDenied, "no", nil)
			}
			return nil
		}
	}
	slowly(t, 1, denied, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		h.Broker.Produce(story.Topic, 0, "rrrr", "k")
		c.at(62 * time.Second)
		c.want(t, "held", p, 0, standing{0, 0, none, 0, none, 0})
	})
}

// TestStatus_LostClaim expects that the rows of a lost claim, which are still in the open batch, do not count as
// waiting.
func TestStatus_LostClaim(t *testing.T) {
	slowly(t, 2, nil, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		h.Broker.Produce(story.Topic, 0, "rrrr", "k")
		c.at(10 * time.Second)
		p.Member.Assign(joined(h, 1))
		c.at(20 * time.Second)
		c.want(t, "what is left", p, 0, standing{0, 0, none, none, none, none})
		p.Member.Assign(joined(h, 0, 1))
		c.at(30 * time.Second)
		c.want(t, "regained", p, 0, standing{0, 4, 20 * time.Second, 0, none, 20 * time.Second})
		p.Member.Assign(connector.Assignment{}) // the generation ends, and the member keeps its claims
		c.at(40 * time.Second)
		c.want(t, "between generations", p, 0, standing{0, 4, 20 * time.Second, 0, none, 20 * time.Second})
	})
}

// TestStatus_ClaimComesBack loses a claim and gets it back. The field Since in its status must be the time at which it
// came back. The field of a claim that stayed must not change.
func TestStatus_ClaimComesBack(t *testing.T) {
	slowly(t, 2, nil, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		since := func() (all []time.Duration) {
			for _, s := range p.Connector.Status().Claims {
				all = append(all, c.since(s.Since))
			}
			return all
		}
		p.Member.Assign(joined(h, 0))
		c.at(10 * time.Second)
		if got := since(); len(got) != 1 || got[0] > 0 {
			t.Errorf("one left: since %v", got)
		}
		p.Member.Assign(joined(h, 0, 1))
		c.at(20 * time.Second)
		if got := since(); len(got) != 2 || got[0] > 0 || got[1] != 10*time.Second {
			t.Errorf("it came back: since %v", got)
		}
	})
}
