package kafka

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/classify"
	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// onProduce calls fn for every produce request from now on; n counts them from 1. If fn returns answer = true, the
// cluster does nothing and responds with code for all partitions. Otherwise it handles the request.
func (w *cluster) onProduce(fn func(n int, req *kmsg.ProduceRequest) (code int16, answer bool)) {
	n := 0
	w.fake.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		n++
		code, yes := fn(n, req)
		if !yes {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

// TestLettersCodes: for each error code of a produce request, the writer does what the table wants: it sends the same
// batch again, sends a different batch, or returns a hold.
func TestLettersCodes(t *testing.T) {
	const again, another, hold = "again", "another", "hold"
	want := map[*kerr.Error]string{
		kerr.UnknownServerError: again, kerr.CorruptMessage: again, kerr.UnknownTopicOrPartition: again, kerr.LeaderNotAvailable: again,
		kerr.NotLeaderForPartition: again, kerr.RequestTimedOut: again, kerr.BrokerNotAvailable: again, kerr.ReplicaNotAvailable: again,
		kerr.NetworkException: again, kerr.NotEnoughReplicas: again, kerr.NotEnoughReplicasAfterAppend: again, kerr.KafkaStorageError: again,
		kerr.FencedLeaderEpoch: again, kerr.UnknownLeaderEpoch: again, kerr.ThrottlingQuotaExceeded: again, kerr.UnknownTopicID: again,
		kerr.NotController: again, kerr.ReassignmentInProgress: again,
		kerr.MessageTooLarge: another, kerr.RecordListTooLarge: another, kerr.InvalidTimestamp: another,
		kerr.TopicAuthorizationFailed: hold, kerr.ClusterAuthorizationFailed: hold, kerr.InvalidTopicException: hold,
		kerr.InvalidRequiredAcks: hold, kerr.UnsupportedForMessageFormat: hold, kerr.PolicyViolation: hold, kerr.InvalidRecord: hold,
		kerr.UnsupportedCompressionType: hold, kerr.InvalidRequest: hold, kerr.UnsupportedVersion: hold, kerr.InvalidProducerEpoch: hold,
		kerr.TransactionalIDAuthorizationFailed: hold, kerr.SaslAuthenticationFailed: hold, kerr.InvalidConfig: hold,
	}
	for code, kind := range want {
		t.Run(code.Message, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *cluster) {
				w.create("s", 1)
				d := w.desk()
				l := []deadletter.Letter{d.letter("s", 0, 1, "a"), d.letter("s", 0, 2, "b"), d.letter("s", 0, 3, "c")}
				asked := 0
				w.onProduce(func(n int, _ *kmsg.ProduceRequest) (int16, bool) {
					asked = n
					return code.Code, n == 1 || kind == hold
				})
				if kind == hold {
					d.holds(l, w.prefix+"s-dlq")
					if asked != 1 {
						t.Errorf("asked %d times", asked)
					}
					return
				}
				d.write(l...)
				w.same(l, w.letters("s-dlq", 3))
				failed := d.logs.count("msg=retry") > 0
				if asked < 2 || asked > 2 && kind == again || failed != (kind == again) {
					t.Errorf("asked %d times, failures of the dependency %v", asked, failed)
				}
			})
		})
	}
}

// TestLettersTimestampRefused: if the topic refuses the record's timestamp, the dead letter gets the time of writing as
// its timestamp. If the topic refuses this timestamp, too, Write returns a hold.
func TestLettersTimestampRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("s", 1)
		d := w.desk()
		l := d.letter("s", 0, 1, "v")
		l.Timestamp = time.Now().Add(1000 * time.Hour).UnixMilli()
		all := false
		w.onProduce(func(n int, _ *kmsg.ProduceRequest) (int16, bool) { return kerr.InvalidTimestamp.Code, n == 1 || all })
		began := time.Now().UnixMilli()
		d.write(l)
		if r := w.records("s-dlq", 1)[0][0]; r.Timestamp < began || r.Timestamp > time.Now().UnixMilli() {
			t.Errorf("stamped %d", r.Timestamp)
		}
		w.same([]deadletter.Letter{l}, w.letters("s-dlq", 1))
		all = true
		d.holds([]deadletter.Letter{l}, "needs a person")
	})
}

// TestLettersCreationRefused: if the cluster refuses to create the dead-letter topic, the table is held, and the hold
// says what the operator can do.
func TestLettersCreationRefused(t *testing.T) {
	for code, words := range map[*kerr.Error][]string{
		kerr.TopicAuthorizationFailed:   {"creating", "is refused", "grant Create"},
		kerr.ClusterAuthorizationFailed: {"creating", "is refused", "grant Create"},
		kerr.PolicyViolation:            {"a policy", "by hand"},
		kerr.InvalidReplicationFactor:   {"cannot be created"},
		kerr.InvalidConfig:              {"cannot be created"},
	} {
		t.Run(code.Message, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *cluster) {
				w.create("s", 1)
				d := w.desk()
				w.fake.ControlKey(int16(kmsg.CreateTopics), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
					req := kreq.(*kmsg.CreateTopicsRequest)
					resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
					rt := kmsg.NewCreateTopicsResponseTopic()
					rt.Topic, rt.ErrorCode = req.Topics[0].Topic, code.Code
					resp.Topics = append(resp.Topics, rt)
					return resp, nil, true
				})
				l := []deadletter.Letter{d.letter("s", 0, 1, "v")}
				d.holds(l, append(words, w.prefix+"s-dlq")...)
				d.write(l...) // the cluster refuses only once, so this write creates the topic
				w.same(l, w.letters("s-dlq", 1))
			})
		})
	}
}

// TestLetters_CreatedConcurrently: another member may create the dead-letter topic at the same moment; the writer takes
// this as success.
func TestLetters_CreatedConcurrently(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("s", 1)
		d := w.desk()
		w.fake.ControlKey(int16(kmsg.CreateTopics), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			req := kreq.(*kmsg.CreateTopicsRequest)
			resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.ErrorCode = req.Topics[0].Topic, kerr.TopicAlreadyExists.Code
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := reliability.Wait(t.Context(), 2*time.Second); err == nil {
				w.create("s-dlq", 2)
			}
		}()
		l := []deadletter.Letter{d.letter("s", 1, 1, "v")}
		d.write(l...)
		<-done
		w.same(l, w.letters("s-dlq", 1))
	})
}

// TestLettersAnswerLost: if the response to a batch gets lost, the writer sends the batch again, whether the cluster
// stored it or not. No dead letter is missing.
func TestLettersAnswerLost(t *testing.T) {
	for name, takes := range map[string]bool{"before it took effect": false, "after it took effect": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *cluster) {
				w.create("s", 1)
				var mute mutableSwitch
				d := w.deskWith(func(c *Config) { c.Dial, c.Session = mute.dial(w.dial), 6*time.Second })
				d.write(d.letter("s", 0, 0, "first"))
				w.onProduce(func(n int, _ *kmsg.ProduceRequest) (int16, bool) {
					if n == 1 {
						mute.answers(false)
					}
					return kerr.RequestTimedOut.Code, n == 1 && !takes
				})
				done := make(chan struct{})
				go func() {
					defer close(done)
					if err := reliability.Wait(t.Context(), 10*time.Second); err == nil {
						mute.answers(true)
					}
				}()
				l := []deadletter.Letter{d.letter("s", 0, 1, "a"), d.letter("s", 0, 2, "b")}
				d.write(l...)
				<-done
				want := []deadletter.Letter{d.letter("s", 0, 0, "first"), l[0], l[1]}
				if takes { // the cluster stored the batch twice; both dead letters have the same coordinates
					want = append(want, l...)
				}
				w.same(want, w.letters("s-dlq", len(want)))
			})
		})
	}
}

// TestLettersBrokerGoneAndBack: while the cluster is down, the writer waits until its circuit breaker allows a new
// attempt. When the cluster is back, the writer writes the dead letters.
func TestLettersBrokerGoneAndBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("s", 4)
		s := &stage{dial: w.dial, stopped: map[string]bool{}}
		d := w.deskWith(func(c *Config) { c.Dial, c.Session = s.connect, 6*time.Second })
		d.write(d.letter("s", 0, 0, "first"))
		s.refuse(true)
		var want []deadletter.Letter
		for i := range int64(8) {
			want = append(want, d.letter("s", int32(i%4), 1+i, "v"))
		}
		done := make(chan error, 1)
		go func() { done <- d.Write(t.Context(), want) }()
		w.until("an open breaker", func() bool { return d.guard.Status().Open })
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		s.refuse(false)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		w.records("s-dlq", 9)
	})
}

// TestLettersLeaderMoves: if the leaders of the dead-letter topic move, the dead letters go to the new leaders, in
// order.
func TestLettersLeaderMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("s", 2)
		d := w.desk()
		var want []deadletter.Letter
		for i := range int64(40) {
			l := d.letter("s", 0, i, "v")
			want = append(want, l)
			d.write(l)
			if i%3 == 0 {
				if err := w.fake.MoveTopicPartition(w.prefix+"s-dlq", 0, int32(i/3%2)); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.same(want, w.letters("s-dlq", 40))
	})
}

// TestLettersTopicCreatedAgain: the writer continues after the dead-letter topic was deleted between two dead letters
// and created again with fewer partitions.
func TestLettersTopicCreatedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("s", 5)
		d := w.desk()
		d.write(d.letter("s", 4, 1, "a"))
		w.delete("s-dlq")
		w.create("s-dlq", 2)
		l := d.letter("s", 4, 2, "b")
		d.write(l)
		w.same([]deadletter.Letter{l}, w.letters("s-dlq", 1))
	})
}

// TestLettersSettingsDenied: if the settings of the dead-letter topic cannot be read, the writer guesses them and logs
// that once. After the first batch that is refused, it corrects its guess.
func TestLettersSettingsDenied(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("s", 1)
		w.createWith("s-dlq", 1, "max.message.bytes", "4000")
		w.fake.ControlKey(int16(kmsg.DescribeConfigs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			resp := kreq.ResponseKind().(*kmsg.DescribeConfigsResponse)
			r := kmsg.NewDescribeConfigsResponseResource()
			r.ErrorCode, r.ResourceName, r.ResourceType = kerr.TopicAuthorizationFailed.Code, w.prefix+"s-dlq", kmsg.ConfigResourceTypeTopic
			resp.Resources = append(resp.Resources, r)
			return resp, nil, true
		})
		d := w.desk()
		l := []deadletter.Letter{d.letter("s", 0, 1, strings.Repeat("v", 20_000)), d.letter("s", 0, 2, "small")}
		d.write(l...)
		got := w.letters("s-dlq", 2)
		whole, err := deadletter.Whole(got[0], d.shelf.objects[got[0].Link.Key])
		if err != nil {
			t.Fatal(err)
		}
		got[0] = whole
		w.same(l, got)
		if n := d.logs.count("grant DescribeConfigs"); n != 1 {
			t.Errorf("%d warnings", n)
		}
	})
}

// TestLettersWritten: the time in a dead letter's header is that of the attempt that wrote it, not that of the first
// attempt, because the topic may have been down for hours in between.
func TestLettersWritten(t *testing.T) {
	for _, envelope := range []deadletter.Envelope{deadletter.EnvelopeHeaders, deadletter.EnvelopeJSON} {
		inBubble(t, func(t *testing.T, w *cluster) {
			w.create("s", 1)
			d := w.desk(func(t *LetterTopic) { t.Envelope = envelope })
			back, sent := time.Now().Add(3*time.Hour), 0
			w.onProduce(func(n int, req *kmsg.ProduceRequest) (int16, bool) {
				if size := len(req.Topics[0].Partitions[0].Records); n > 1 && size != sent {
					t.Errorf("%s: attempt %d has %d bytes, the one before %d", envelope, n, size, sent)
				}
				sent = len(req.Topics[0].Partitions[0].Records)
				return kerr.NotEnoughReplicas.Code, time.Now().Before(back)
			})
			l := []deadletter.Letter{d.letter("s", 0, 1, "a"), d.letter("s", 0, 2, "b")}
			d.write(l...)
			over := time.Now()
			got := w.letters("s-dlq", 2)
			w.same(l, got)
			for _, g := range got {
				if g.Written.Before(back.Add(-time.Second)) || g.Written.After(over) {
					t.Errorf("%s: %v was written at %v, want between %v and %v", envelope, g.Source, g.Written, back, over)
				}
			}
		})
	}
}

// TestLettersAreSentInParts: dead letters of 16 MB are written with requests of at most letterRoundBytes, and in
// batches of at most letterBatchBytes.
func TestLettersAreSentInParts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.createWith("s-dlq", 8)
		largest := 0
		w.onProduce(func(_ int, req *kmsg.ProduceRequest) (int16, bool) {
			sum := 0
			for _, p := range req.Topics[0].Partitions {
				sum += len(p.Records)
				if len(p.Records) > letterBatchBytes {
					t.Errorf("a batch of %d bytes", len(p.Records))
				}
			}
			largest = max(largest, sum)
			if req.Acks != -1 {
				t.Errorf("acks %d", req.Acks)
			}
			return 0, false
		})
		d := w.desk()
		var all []deadletter.Letter
		for i := range int64(160) {
			all = append(all, d.letter("s", int32(i%8), i, strings.Repeat("v", 100_000)))
		}
		d.write(all...)
		w.records("s-dlq", len(all))
		if largest > letterRoundBytes+200_000 {
			t.Errorf("%d bytes at once", largest)
		}
	})
}

// TestLettersCanceled: if its context ends, Write returns a Canceled error at once, even while it waits for the
// cluster.
func TestLettersCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		s := &stage{dial: w.dial, stopped: map[string]bool{}}
		s.refuse(true)
		d := w.deskWith(func(c *Config) { c.Dial = s.connect })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err := d.Write(ctx, []deadletter.Letter{d.letter("s", 0, 1, "v")})
		if err == nil || classify.Of(err) != classify.Canceled {
			t.Errorf("%v", err)
		}
	})
}

// mutableSwitch makes the responses of brokers get lost while it is muted.
type mutableSwitch struct {
	mu    sync.Mutex
	muted bool
}

func (m *mutableSwitch) answers(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.muted = !yes
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func (m *mutableSwitch) dial(next dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		m.mu.Lock()
		muted := m.muted
		m.mu.Unlock()
		if muted {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
		}
		conn, err := next(ctx, network, address)
		return &deafConn{conn, m}, err
	}
}

// deafConn is a connection that drops received bytes while its switch is muted.
type deafConn struct {
	net.Conn
	m *mutableSwitch
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.m.muted {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}
