package kafka

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/connector"
	"sluice/reliability/hold"
)

// TestLogLeaderMoves: reading continues while partitions move between brokers.
func TestLogLeaderMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 4)
		r := w.read(LogConfig{})
		parts := r.partitions("t")
		for _, p := range parts {
			r.from(p, 0, -1)
		}
		w.onFetch(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			for _, p := range req.Topics[0].Partitions {
				if p.CurrentLeaderEpoch < 0 {
					t.Error("a request without the leader's epoch")
				}
			}
			return nil
		})
		var want []string
		for round := range 6 {
			tag := fmt.Sprintf("r%d-", round)
			for _, p := range parts {
				w.produce("t", p.ID, 50, tag)
			}
			want = append(want, tagged(tag, 50)...)
			r.until(time.Minute, func() bool { return r.records() == 200*(round+1) })
			for _, p := range parts {
				if err := w.fake.MoveTopicPartition("t", p.ID, (p.ID+int32(round))%2); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, p := range parts {
			if !slices.Equal(r.values(p), want) {
				t.Errorf("%v: %d records, want %d", p, len(r.got[p]), len(want))
			}
			if r.at[p].Epoch == 0 {
				t.Errorf("%v: the epoch never rose", p)
			}
		}
		moves := r.metric("sluice_fetch_errors_total", "kind", "leader")
		if moves == 0 {
			t.Error("no move was noticed")
		}
		t.Logf("%d records in order, %v refusals", r.records(), moves)
	})
}

// TestLogOldMetadata: if a broker with old metadata names a former leader, the Log sends no request to it.
func TestLogOldMetadata(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.produce("t", 0, 10, "v")
		r := w.read(LogConfig{})
		p := r.partitions("t")[0]
		for range 2 { // the partition moves to another broker and back, so its epoch is 2
			if err := w.fake.MoveTopicPartition("t", 0, 1-w.fake.LeaderFor("t", 0)); err != nil {
				t.Fatal(err)
			}
		}
		r.from(p, 0, -1)
		r.until(time.Minute, func() bool { return r.records() == 10 })
		old := w.fake.LeaderFor("t", 0)
		until := time.Now().Add(5 * time.Second)
		w.fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			m := req.(*kmsg.MetadataRequest)
			if m.Version < metadataVersion || time.Now().After(until) {
				return nil, nil, false
			}
			resp := m.ResponseKind().(*kmsg.MetadataResponse)
			resp.ClusterID = &p.Cluster
			mt, mp := kmsg.NewMetadataResponseTopic(), kmsg.NewMetadataResponseTopicPartition()
			mt.Topic, mt.TopicID = &p.Topic, p.TopicID
			mp.Leader, mp.LeaderEpoch = old, 1
			mt.Partitions = append(mt.Partitions, mp)
			resp.Topics = append(resp.Topics, mt)
			return resp, nil, true
		})
		if err := w.fake.MoveTopicPartition("t", 0, 1-old); err != nil {
			t.Fatal(err)
		}
		var late atomic.Int32
		began := time.Now()
		w.onFetch(func(*kmsg.FetchRequest) *kmsg.FetchResponse {
			if w.fake.CurrentNode() == old && time.Since(began) > time.Second {
				late.Add(1)
			}
			return nil
		})
		w.produce("t", 0, 10, "w")
		r.until(time.Minute, func() bool { return r.records() == 20 })
		if n := late.Load(); n > 0 || time.Since(began) < 4*time.Second {
			t.Errorf("%d requests to the old leader, read after %v", n, time.Since(began))
		}
	})
}

// testLogRecreatedTopic: a partition of a deleted topic is held as topic_missing, one of a re-created topic as
// topic_recreated, each after two readings.
func testLogRecreatedTopic(t *testing.T, w *cluster) {
	for _, again := range []bool{false, true} {
		w.create("t", 1)
		w.produce("t", 0, 10, "old")
		r := w.read(LogConfig{})
		p := r.partitions("t")[0]
		r.from(p, 0, -1)
		r.until(time.Minute, func() bool { return r.records() == 10 })
		began := time.Now()
		w.delete("t")
		want := hold.TopicMissing
		if again {
			w.create("t", 1)
			w.produce("t", 0, 20, "new")
			want = hold.TopicRecreated
		}
		r.holds(time.Minute, p, want)
		if since := time.Since(began); since < confirm {
			t.Errorf("%s after %v: nobody looked twice", want, since)
		}
		if r.records() != 10 || r.at[p].Next != 10 {
			t.Errorf("%d records, next %d", r.records(), r.at[p].Next)
		}
		// The finding persists, so a later request for the partition gets it at once.
		if w.fake != nil {
			time.Sleep(time.Minute)
		}
		began = time.Now()
		r.from(p, 10, 0)
		r.holds(time.Minute, p, want)
		if since := time.Since(began); since > time.Second {
			t.Errorf("the standing finding took %v", since)
		}
		bounds, err := r.Bounds(t.Context(), []connector.Position{{Partition: p, Next: 10, Epoch: 0}})
		if err != nil || len(bounds) != 0 {
			t.Errorf("bounds of a partition that is gone: %v %v", bounds, err)
		}
		r.stop()
	}
}

// testLogOutOfRange: a partition whose position is outside of the log is held after two readings five seconds apart.
// The other partitions continue.
func testLogOutOfRange(t *testing.T, w *cluster) {
	w.create("t", 3)
	for p := range int32(3) {
		for range 5 {
			w.produce("t", p, 10, "v")
		}
	}
	w.deleteRecords("t", 0, 30)
	r := w.read(LogConfig{})
	parts := r.partitions("t")
	began := time.Now()
	r.from(parts[0], 20, -1)
	r.from(parts[1], 51, -1)
	r.from(parts[2], 0, -1)
	r.holds(time.Minute, parts[0], hold.BehindLogStart)
	r.holds(time.Minute, parts[1], hold.AheadOfLogEnd)
	if since := time.Since(began); since < confirm || since > 3*confirm {
		t.Errorf("after %v", since)
	}
	if b := r.last[parts[0]].Bounds; b.LogStart != 30 || b.HighWatermark != 50 {
		t.Errorf("%+v", b)
	}
	if len(r.got[parts[2]]) != 50 || r.records() != 50 {
		t.Errorf("%d records, %d of the good partition", r.records(), len(r.got[parts[2]]))
	}
	// The end and the start of the log are positions inside it.
	r.from(parts[0], 30, -1)
	r.from(parts[1], 50, -1)
	r.until(time.Minute, func() bool { return len(r.got[parts[0]]) == 20 })
	w.produce("t", 1, 1, "more")
	r.until(time.Minute, func() bool { return len(r.got[parts[1]]) == 1 })
}

// TestLogFindingHasToStand: if fetch responses say that a position is out of range, but the log contains it and a later
// request succeeds, the partition is not held.
func TestLogFindingHasToStand(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.produce("t", 0, 10, "v")
		w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerr.OffsetOutOfRange, Count: 2})
		r := w.read(LogConfig{})
		p := r.partitions("t")[0]
		r.from(p, 0, -1)
		r.until(time.Minute, func() bool { return r.records() == 10 })
		if r.held[p] != nil {
			t.Fatal(r.held[p])
		}
		// If a broker refuses a position each time although the log contains it, the partition is held after all.
		w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerr.OffsetOutOfRange, Count: -1})
		r.session++
		r.from(p, 5, 0)
		r.holds(time.Minute, p, hold.Truncated)
	})
}

// TestLogTruncated: a diverging epoch in a fetch response counts only if a request for the leader's epochs confirms it
// (KIP-320).
func TestLogTruncated(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.produce("t", 0, 10, "v")
		r := w.read(LogConfig{})
		p := r.partitions("t")[0]
		// Kfake does not compare the epoch of the last record, so the test does.
		w.onFetch(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			if req.IsolationLevel != 1 {
				t.Error("a request that is not read_committed")
			}
			if asked := req.Topics[0].Partitions[0]; asked.LastFetchedEpoch != 5 || asked.FetchOffset != 8 {
				t.Errorf("asked for %+v", asked)
			}
			return answer(req, func(_ kmsg.FetchRequestTopicPartition, rp *kmsg.FetchResponseTopicPartition) {
				rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = 0, 4
			})
		})
		w.fake.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			r := req.(*kmsg.OffsetForLeaderEpochRequest)
			if asked := r.Topics[0].Partitions[0]; asked.LeaderEpoch != 5 || asked.CurrentLeaderEpoch != 0 {
				t.Errorf("asked for %+v", asked)
			}
			resp := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = "t"
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.LeaderEpoch, rp.EndOffset = 0, 4
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		r.from(p, 8, 5)
		r.holds(time.Minute, p, hold.Truncated)
		if r.last[p].Bounds.DivergedAt != 4 || r.last[p].Next != 8 {
			t.Errorf("%+v", r.last[p])
		}
		began := time.Now()
		bounds, err := r.Bounds(t.Context(), []connector.Position{{Partition: p, Next: 8, Epoch: 5}})
		if err != nil || bounds[p].DivergedAt != 4 || time.Since(began) > time.Second {
			t.Errorf("%+v %v after %v", bounds, err, time.Since(began))
		}
	})
}

// TestLogFinding_LeaderMoves: both readings of a finding must be under the same leader, because a new leader may not
// know yet where its log ends.
func TestLogFinding_LeaderMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.produce("t", 0, 10, "v")
		r := w.read(LogConfig{})
		p := r.partitions("t")[0]
		began := time.Now()
		time.AfterFunc(3*time.Second, func() {
			if err := w.fake.MoveTopicPartition("t", 0, 1-w.fake.LeaderFor("t", 0)); err != nil {
				t.Error(err)
			}
		})
		r.from(p, 11, -1)
		r.holds(time.Minute, p, hold.AheadOfLogEnd)
		if since := time.Since(began); since < 3*time.Second+confirm {
			t.Errorf("after %v: one reading was the old leader's", since)
		}
		if b := r.last[p].Bounds; b.LeaderEpoch != 1 {
			t.Errorf("%+v", b)
		}
	})
}
