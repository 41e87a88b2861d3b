package story_test

import (
	"testing"
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// endsOnlyByAMove expects partition 0 to stay held at offset 6 for ten minutes. The hold must end when an operator
// moves the position back to offset 3, where the logs differ, and the records from there must become rows.
func endsOnlyByAMove(t *testing.T, h *story.Harness, p *story.Process, reason hold.Reason) {
	t.Helper()
	for range 10 {
		time.Sleep(time.Minute)
		wantHolds(t, p, map[int32]hold.Reason{0: reason})
	}
	wantRows(t, h, 0, []int64{0, 1, 2, 3, 4, 5})
	if _, err := commit.Move(t.Context(), h.Operator(), moves(h, move(h, 0, 6, 3))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end again", h.AtEnd)
	wantHolds(t, p, map[int32]hold.Reason{})
	wantRows(t, h, 0, []int64{0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7})
}

// TestTruncatedLog_HoldsUntilMoved truncates the log below the position of a claim that is being read, and lets the log
// grow beyond the position. The claim must be held until an operator moves it, so that no record that replaced a lost
// record is skipped.
func TestTruncatedLog_HoldsUntilMoved(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrrrrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		time.Sleep(5 * time.Second)
		h.Broker.Truncate(story.Topic, 0, 3, "rrrrr")
		h.Broker.SetGroupOffset(story.Topic, 0, 2)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Truncated})
		endsOnlyByAMove(t, h, p, hold.Truncated)
	})
}

// TestTruncatedLog_GrownPastPosition has a claim that is held because its position, whose leader epoch is unknown, is
// beyond the log's end. The claim must stay held when the log has grown past the position, because other records are
// now before the position.
func TestTruncatedLog_GrownPastPosition(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Log.ForgetEpochs()
		h.Broker.Produce(story.Topic, 0, "rrrrrr", "k")
		first := h.Begin(t.Context())
		first.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		time.Sleep(5 * time.Second)
		h.Crash(first)
		h.Broker.Truncate(story.Topic, 0, 3, "")
		h.Broker.SetGroupOffset(story.Topic, 0, 2) // replaces the committed offset with the epoch of the position
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		wantHolds(t, p, map[int32]hold.Reason{0: hold.AheadOfLogEnd})
		h.Broker.Produce(story.Topic, 0, "rrrrr", "k")
		endsOnlyByAMove(t, h, p, hold.AheadOfLogEnd)
	})
}

// TestPosition_Unchecked has a table without leader epochs, as older versions wrote it. A member must continue at the
// position. A metric must count the position as unchecked only if the committed offset does not have its epoch either.
func TestPosition_Unchecked(t *testing.T) {
	for lost, want := range map[bool]float64{false: 0, true: 1} {
		scenario(t, 1, func(t *testing.T, h *story.Harness) {
			h.Log.ForgetEpochs()
			h.Broker.Produce(story.Topic, 0, "rrrrrr", "k")
			first := h.Begin(t.Context())
			first.Member.Assign(joined(h, 0))
			eventually(t, "end", h.AtEnd)
			time.Sleep(5 * time.Second)
			h.Crash(first)
			if lost {
				h.Broker.SetGroupOffset(story.Topic, 0, 2)
			}
			p := h.Begin(t.Context())
			p.Member.Assign(joined(h, 0))
			h.Broker.Produce(story.Topic, 0, "rrr", "k")
			eventually(t, "end again", h.AtEnd)
			if got := p.Counted("sluice_positions_unchecked_total"); got != want || first.Counted("sluice_positions_unchecked_total") != 0 {
				t.Errorf("epoch lost %t: %v positions counted, want %v", lost, got, want)
			}
		})
	}
}

// TestHold_KeepsLag expects the status of a held claim to follow the log's end, and to keep the last known end while
// the end cannot be read.
func TestHold_KeepsLag(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		h.Log.Replace("table-2")
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		wantHolds(t, p, map[int32]hold.Reason{0: hold.TableReplaced})
		time.Sleep(5 * time.Minute)
		if c := p.Connector.Status().Claims[0]; c.Position != 2 || c.End != 5 || c.Lag != 3 {
			t.Errorf("it is at %d of %d, and has a lag of %d", c.Position, c.End, c.Lag)
		}
		h.Broker.Produce(story.Topic, 0, "r", "k")
		eventually(t, "the lag grows", func() bool { return p.Connector.Status().Claims[0].Lag == 4 })
		h.Broker.Lock(func() { h.Broker.Silent = map[int32]bool{0: true} })
		time.Sleep(5 * time.Minute)
		if c := p.Connector.Status().Claims[0]; c.End != 6 || c.Lag != 4 {
			t.Errorf("without a response, it is at %d of %d, and has a lag of %d", c.Position, c.End, c.Lag)
		}
	})
}

// TestTruncatedLog_OffsetNotCommitted kills a member between its commit and the committed offset. Then the log is
// truncated and grows beyond the position. The next member must detect the truncation by the leader epoch in the table.
func TestTruncatedLog_OffsetNotCommitted(t *testing.T) {
	for name, lose := range map[string]func(h *story.Harness){
		"the committed offset is old":     func(h *story.Harness) { h.Broker.SetGroupOffset(story.Topic, 0, 2) },
		"there is no committed offset":    func(h *story.Harness) { h.Broker.ForgetGroup(story.Topic) },
		"its metadata are another tool's": func(h *story.Harness) { h.Broker.SetGroupOffset(story.Topic, 0, 6) },
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, 1, func(t *testing.T, h *story.Harness) {
				for range 5 {
					h.Broker.Elect(story.Topic, 0)
				}
				h.Broker.Produce(story.Topic, 0, "rrrrrr", "k")
				first := h.Begin(t.Context())
				first.Member.Assign(joined(h, 0))
				eventually(t, "end", h.AtEnd)
				h.Crash(first)
				h.Broker.Truncate(story.Topic, 0, 3, "rrrrr")
				lose(h)
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0))
				wantHolds(t, p, map[int32]hold.Reason{0: hold.Truncated})
				endsOnlyByAMove(t, h, p, hold.Truncated)
				if n := p.Counted("sluice_positions_unchecked_total"); n != 1 { // the operator's position has no epoch
					t.Errorf("%v positions counted as unchecked", n)
				}
			})
		})
	}
}

// TestTruncatedHold_EpochOfItsPlace has a bad record that holds a claim, and a batch that continues into a newer leader
// epoch. The commit must store the older epoch. An election that loses only records of the newer epoch loses no record
// that has a row, so the claim must not count as truncated.
func TestTruncatedHold_EpochOfItsPlace(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrpr", "k")
		h.Broker.Elect(story.Topic, 0)
		h.Broker.Produce(story.Topic, 0, "rr", "k")
		first := h.Begin(t.Context())
		first.Member.Assign(joined(h, 0))
		wantHolds(t, first, map[int32]hold.Reason{0: hold.Poison})
		eventually(t, "the committed offset", func() bool { return h.Broker.GroupOffsets(story.Topic)[0].Next == 2 })
		if v := h.Log.Versions(); len(v[len(v)-1].Rows) != 2 || h.Position(0) != 2 {
			t.Fatalf("the position is %d, its last version is %+v", h.Position(0), v[len(v)-1])
		}
		p := h.Broker.Partitions(story.Topic)[0]
		versions := h.Log.Versions()
		last := versions[len(versions)-1].Commit
		for what, epoch := range map[string]int64{
			"range": int64(last.Ranges[0].Epoch), "txn": txnOf(last, p.EpochAppID(story.Pipeline)), "committed offset": int64(h.Broker.GroupOffsets(story.Topic)[0].Epoch),
		} {
			if epoch > 0 {
				t.Errorf("the %s carries leader epoch %d, the records before the hold were read in 0", what, epoch)
			}
		}
		h.Crash(first)
		h.Broker.Truncate(story.Topic, 0, 4, "rr")
		again := h.Begin(t.Context())
		again.Member.Assign(joined(h, 0))
		for range 10 {
			time.Sleep(time.Minute)
			wantHolds(t, again, map[int32]hold.Reason{0: hold.Poison})
		}
		if _, err := commit.Move(t.Context(), h.Operator(), moves(h, move(h, 0, 2, 3))); err != nil {
			t.Fatal(err)
		}
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 1, 3, 4, 5})
	})
}

// txnOf returns the version of the txn that a commit has for an appId, -2 if it has none.
func txnOf(c connector.Commit, appID string) int64 {
	for _, x := range c.Txns {
		if x.AppID == appID {
			return x.Version
		}
	}
	return -2
}

// TestTruncatedHold_BehindMarkers has a leader epoch that begins with a control record and then a bad record, which
// holds the claim. The next member must not count the claim as truncated, although the epoch of the last row ends
// before the offset of the hold.
func TestTruncatedHold_BehindMarkers(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rr", "k")
		h.Broker.Elect(story.Topic, 0)
		h.Broker.Produce(story.Topic, 0, "cpr", "k")
		first := h.Begin(t.Context())
		first.Member.Assign(joined(h, 0))
		wantHolds(t, first, map[int32]hold.Reason{0: hold.Poison})
		eventually(t, "commit", func() bool { return h.Position(0) == 3 })
		h.Crash(first)
		again := h.Begin(t.Context())
		again.Member.Assign(joined(h, 0))
		for range 5 {
			time.Sleep(time.Minute)
			wantHolds(t, again, map[int32]hold.Reason{0: hold.Poison})
		}
	})
}
