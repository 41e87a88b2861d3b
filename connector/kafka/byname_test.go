package kafka

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"sluice/reliability/hold"
)

// older makes an in-process cluster behave as Kafka 2.8, the first version with topic ids, with Fetch up to the
// version fetch.
func older(fetch int16) kfake.Opt {
	versions := kversion.V2_8_0()
	versions.SetMaxKeyVersion(int16(kmsg.Fetch), fetch)
	return kfake.MaxVersions(versions)
}

// TestLogByName: brokers from which the Log reads by topic name pass the list logConformance, also when topics are
// deleted and created again.
func TestLogByName(t *testing.T) {
	for _, fetch := range []int16{11, 12} {
		for _, tt := range logConformance {
			t.Run(fmt.Sprintf("v%d/%s", fetch, tt.name), func(t *testing.T) { inBubble(t, tt.run, older(fetch)) })
		}
	}
}

// TestLogOldBroker: an old broker is logged once and returned by Old and Brokers. A broker that is too old to read from
// is a hold that names the broker.
func TestLogOldBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 4)
		for p := range int32(4) {
			if err := w.fake.MoveTopicPartition("t", p, p%2); err != nil {
				t.Fatal(err)
			}
		}
		r := w.read(LogConfig{})
		for round := range 3 {
			for _, p := range r.partitions("t") {
				w.produce("t", p.ID, 10, "v")
				if round == 0 {
					r.from(p, 0, -1)
				}
			}
			r.until(time.Minute, func() bool { return r.records() == 40*(round+1) })
		}
		if n := r.logs.count("read with less safety"); n != 2 || !strings.Contains(r.logs.String(), "fetch_version=12 lost=") {
			t.Errorf("%d lines:\n%s", n, r.logs)
		}
		if old := r.Old(); len(old) != 2 || old[0] != 12 || old[1] != 12 {
			t.Errorf("old brokers: %v", old)
		}
		byName, all := r.metric("sluice_fetch_by_name_requests_total"), r.metric("sluice_fetch_requests_total")
		if byName != all || all == 0 {
			t.Errorf("%v requests by name of %v", byName, all)
		}
		brokers, err := r.client.Brokers(t.Context())
		if err != nil || len(brokers) != 2 {
			t.Fatal(brokers, err)
		}
		for _, b := range brokers {
			if b.Err != nil || b.Fetch != 12 || !strings.Contains(b.Lost, "by name") || b.Port == 0 {
				t.Errorf("%+v", b)
			}
		}
	}, older(12))
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		r := w.read(LogConfig{})
		_, err := r.Topic(t.Context(), "t")
		var h *hold.Error
		if !errors.As(err, &h) || h.Reason != hold.KafkaIncompatible || !errors.Is(err, errVersion) || !strings.Contains(err.Error(), "needed is v10 to v10 (Kafka 2.8") {
			t.Error(err)
		}
	}, kfake.MaxVersions(kversion.V2_7_0()))
	versions := kversion.V4_0_0()
	versions.SetMaxKeyVersion(int16(kmsg.Fetch), 10)
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.produce("t", 0, 10, "v")
		r := w.read(LogConfig{})
		r.from(r.partitions("t")[0], 0, -1)
		r.within(time.Minute, func() bool { return false })
		status := r.Status()
		if r.answers > 0 || len(status) != 1 || status[0].Reason != hold.KafkaIncompatible || !errors.Is(status[0].Err, errVersion) ||
			!strings.Contains(status[0].Err.Error(), "Fetch v4 to v10, needed is v11") {
			t.Errorf("%d answers, status %+v", r.answers, status)
		}
		brokers, err := r.client.Brokers(t.Context())
		if err != nil || len(brokers) != 2 || !errors.Is(brokers[0].Err, errVersion) || brokers[0].Fetch != 0 {
			t.Error(brokers, err)
		}
	}, kfake.MaxVersions(versions))
}

// TestBrokers: for brokers with the newest Fetch version, Brokers names no check that they lack.
func TestBrokers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		r := w.read(LogConfig{})
		brokers, err := r.client.Brokers(t.Context())
		if err != nil || len(brokers) != 2 {
			t.Fatal(brokers, err)
		}
		for _, b := range brokers {
			if b.Err != nil || b.Fetch != 13 || b.Lost != "" {
				t.Errorf("%+v", b)
			}
		}
		r.from(r.partitions("t")[0], 0, -1)
		r.until(time.Minute, func() bool { return r.answers > 0 })
		if old := r.Old(); len(old) != 0 || r.metric("sluice_fetch_by_name_requests_total") != 0 {
			t.Errorf("old brokers: %v", old)
		}
	})
}

// TestTopicWithoutID: a topic without an id is not read, because Sluice would not notice if it were deleted and created
// again.
func TestTopicWithoutID(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			m := req.(*kmsg.MetadataRequest)
			if m.Version < metadataVersion {
				return nil, nil, false
			}
			resp := m.ResponseKind().(*kmsg.MetadataResponse)
			mt := kmsg.NewMetadataResponseTopic()
			mt.Topic = new("t")
			mt.Partitions = append(mt.Partitions, kmsg.NewMetadataResponseTopicPartition())
			resp.Topics = append(resp.Topics, mt)
			return resp, nil, true
		})
		r := w.read(LogConfig{})
		_, err := r.Topic(t.Context(), "t")
		var h *hold.Error
		if !errors.As(err, &h) || !errors.Is(err, errNoTopicID) || h.Reason != hold.KafkaIncompatible {
			t.Error(err)
		}
	})
}

// TestLogBrokersChangeVersion: reading continues while brokers are replaced by older and newer ones.
func TestLogBrokersChangeVersion(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 2)
		var highest atomic.Int32
		highest.Store(13)
		w.fake.ControlKey(int16(kmsg.ApiVersions), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
			kversion.V3_9_0().EachMaxKeyVersion(func(key, version int16) {
				if key == int16(kmsg.Fetch) {
					version = int16(highest.Load())
				}
				resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: version})
			})
			return resp, nil, true
		})
		var asked atomic.Int32 // the highest version of a fetch request that got a response
		w.fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			now, version := highest.Load(), int32(req.GetVersion())
			switch {
			case version <= now:
				asked.Store(max(asked.Load(), version))
				return nil, nil, false
			case now == 12: // some brokers respond with the error
				resp := req.ResponseKind().(*kmsg.FetchResponse)
				resp.ErrorCode = 35
				return resp, nil, true
			}
			return nil, errors.New("unsupported version"), true // others close the connection
		})
		r := w.read(LogConfig{})
		parts := r.partitions("t")
		for _, p := range parts {
			r.from(p, 0, -1)
		}
		for round, version := range []int32{13, 12, 11, 13, 11, 12} {
			if highest.Swap(version) < version { // brokers end their connections when they are restarted
				r.client.forget(0)
				r.client.forget(1)
			}
			asked.Store(0)
			r.within(time.Second, func() bool { return false }) // the brokers answer the waiting fetch requests, and the client sends new ones
			for _, p := range parts {
				w.produce("t", p.ID, 10, "v")
			}
			r.until(time.Minute, func() bool { return r.records() == 20*(round+1) })
			if asked.Load() != version {
				t.Errorf("version %d: asked in %d", version, asked.Load())
			}
			if want := version < 13; (len(r.Old()) > 0) != want {
				t.Errorf("version %d: old brokers %v", version, r.Old())
			}
		}
		for _, p := range parts {
			if r.at[p].Next != 60 || r.held[p] != nil {
				t.Errorf("%+v %v", r.at[p], r.held[p])
			}
		}
		if !strings.Contains(r.logs.String(), "read by topic id now") {
			t.Error(r.logs)
		}
	})
}

// TestLogTruncatedUnseenByBroker: a broker that compares no epochs does not report a truncated log. So the Log compares
// a position with the leader's history of epochs itself, but only when the leader has a newer epoch than the position.
func TestLogTruncatedUnseenByBroker(t *testing.T) {
	for _, truncated := range []bool{false, true} {
		t.Run(fmt.Sprint(truncated), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *cluster) {
				w.create("t", 1)
				w.produce("t", 0, 10, "v")
				r := w.read(LogConfig{})
				p := r.partitions("t")[0]
				r.from(p, 0, -1)
				r.until(time.Minute, func() bool { return r.records() == 10 })
				var questions atomic.Int32
				w.fake.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
					w.fake.KeepControl()
					questions.Add(1)
					if !truncated {
						return nil, nil, false
					}
					resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
					rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
					rt.Topic = "t"
					rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
					rp.LeaderEpoch, rp.EndOffset = 0, 6 // the new leader has six records of epoch 0
					rt.Partitions = append(rt.Partitions, rp)
					resp.Topics = append(resp.Topics, rt)
					return resp, nil, true
				})
				for range 3 {
					if err := w.fake.MoveTopicPartition("t", 0, 1-w.fake.LeaderFor("t", 0)); err != nil {
						t.Fatal(err)
					}
				}
				w.produce("t", 0, 10, "w") // these ten records have epoch 3 and begin at offset 10
				if truncated {
					r.holds(time.Minute, p, hold.Truncated)
					if r.records() != 10 || r.at[p].Next != 10 || r.last[p].Bounds.DivergedAt != 6 {
						t.Errorf("%d records, %+v", r.records(), r.last[p])
					}
					return
				}
				r.until(time.Minute, func() bool { return r.records() == 20 })
				w.produce("t", 0, 10, "x")
				r.until(time.Minute, func() bool { return r.records() == 30 })
				if n := questions.Load(); n == 0 || n > 3 {
					t.Errorf("asked for epochs %d times in 3 changes", n)
				}
			}, older(11))
		})
	}
}

// TestLogByNameRecreatedUnseen: an old broker serves a topic by name although it was created again between two
// requests, with the same leader and more records. None of its records is delivered.
func TestLogByNameRecreatedUnseen(t *testing.T) {
	for _, fetch := range []int16{11, 12} {
		inBubble(t, func(t *testing.T, w *cluster) {
			w.create("t", 1)
			w.produce("t", 0, 10, "old")
			leader := w.fake.LeaderFor("t", 0)
			r := w.read(LogConfig{})
			p := r.partitions("t")[0]
			r.from(p, 0, -1)
			if a := <-r.Fetched(); a.Next != 10 || a.Epoch != 0 { // the test sends no request for the next offset
				t.Fatalf("%+v", a)
			} else {
				a.Records.Release()
			}
			for again := true; again; again = w.fake.LeaderFor("t", 0) != leader {
				w.delete("t")
				w.create("t", 1)
			}
			w.produce("t", 0, 20, "new")
			r.from(p, 10, 0)
			r.holds(time.Minute, p, hold.TopicRecreated)
			if r.records() != 0 || r.at[p].Next != 10 {
				t.Errorf("%d records, next %d", r.records(), r.at[p].Next)
			}
		}, older(fetch))
	}
}
