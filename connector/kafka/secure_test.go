package kafka

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"sluice/connector/kafka/dial"
	"sluice/reliability/hold"
	"sluice/test/certs"
)

// secured runs a test with a cluster whose brokers know one user and end authenticated sessions after two seconds.
func secured(t *testing.T, test func(t *testing.T, s *cluster, with func(*Config))) {
	t.Helper()
	inBubble(t, func(t *testing.T, s *cluster) {
		test(t, s, func(c *Config) {
			c.SASL = &dial.SASL{Mechanism: dial.Plain, Username: "sluice", Password: "right", InsecurePlaintext: true}
		})
	}, kfake.EnableSASL(), kfake.Superuser("PLAIN", "sluice", "right"), kfake.SeedTopics(2, "t"),
		kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "2000"}))
}

// TestSessionsEnd: if brokers limit the time of authenticated sessions, connections authenticate again. This causes no
// new generation, no trouble in the status, and no error.
func TestSessionsEnd(t *testing.T) {
	secured(t, func(t *testing.T, s *cluster, with func(*Config)) {
		member, reading := prometheus.NewRegistry(), prometheus.NewRegistry()
		a := s.start(func(c *Config, _ *GroupConfig) { with(c); c.Registerer = member }, "t")
		s.until("joined", a.has(2))
		r := s.read(LogConfig{}, with, func(c *Config) { c.Registerer = reading })
		p := r.partitions("t")[0]
		r.from(p, 0, -1)
		for second := range 300 {
			s.produceAs(t, "t", p.ID, "v")
			r.until(time.Minute, func() bool { return r.records() == second+1 })
			time.Sleep(time.Second)
		}
		// Heartbeats come every 3 s, fetches twice a second. Their connections authenticate again at the first request
		// after 1.9 s.
		for reg, least := range map[*prometheus.Registry]float64{member: 95, reading: 120} {
			if n := renewals(t, reg); n < least {
				t.Errorf("authenticated again %v times in 300 s, want %v or more", n, least)
			}
		}
		a.told("joined t:0 t:1")
		if n := a.metricValues()["sluice_group_generations_total"]; n != 1 {
			t.Errorf("%v generations", n)
		}
		if trouble := r.Status(); trouble != nil {
			t.Errorf("trouble: %v", trouble)
		}
		if logs := r.logs.String() + a.logs.String(); strings.Contains(logs, "WARN") || strings.Contains(logs, "ERROR") {
			t.Errorf("said:\n%s", logs)
		}
	})
}

// renewals returns how often connections were authenticated again.
func renewals(t *testing.T, reg *prometheus.Registry) (n float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "sluice_kafka_reauthentications_total" && m.GetLabel()[0].GetValue() == "ok" {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// TestRefusedCredentials: if brokers no longer accept the password, every request fails with a refusal that names the
// cause. Each address of a broker gets at most two attempts a minute. Once the password is accepted again, everything
// continues without a restart.
func TestRefusedCredentials(t *testing.T) {
	secured(t, func(t *testing.T, s *cluster, with func(*Config)) {
		var refuse atomic.Bool
		var tries atomic.Int64
		s.fake.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
			s.fake.KeepControl()
			if !refuse.Load() {
				return nil, nil, false
			}
			tries.Add(1)
			resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode, resp.ErrorMessage = 58, new("Authentication failed: Invalid username or password")
			return resp, nil, true
		})
		a := s.start(func(c *Config, _ *GroupConfig) { with(c) }, "t")
		s.until("joined", a.has(2))
		r := s.read(LogConfig{}, with)
		p := r.partitions("t")[0]
		r.from(p, 0, -1)
		s.produceAs(t, "t", p.ID, "v")
		r.until(time.Minute, func() bool { return r.records() == 1 })

		refuse.Store(true)
		<-a.ended
		const text = "refuses the credentials (PLAIN as sluice: Authentication failed: Invalid username or password)"
		denied := func(what string, err error) {
			t.Helper()
			var h *hold.Error
			if !errors.As(err, &h) || h.Reason != hold.KafkaDenied || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", what, err)
			}
		}
		denied("the group", a.err)
		if trouble, ok := a.Trouble(); !ok || trouble.Reason != hold.KafkaDenied {
			t.Errorf("the group's trouble: %v", trouble)
		}
		r.within(time.Minute, func() bool { _, troubled := r.TroubleOf(p); return troubled })
		if trouble, ok := r.TroubleOf(p); !ok || trouble.Reason != hold.KafkaDenied || !strings.Contains(trouble.Err.Error(), text) {
			t.Errorf("the partition's trouble: %v", trouble)
		}
		tries.Store(0)
		const minutes = 20
		for range minutes * 60 {
			_, err := r.Topic(t.Context(), "t")
			denied("metadata", err)
			time.Sleep(time.Second)
		}
		// Two brokers with two addresses each, and at most two attempts a minute for an address.
		if n := tries.Load(); n < minutes || n > 2*4*minutes {
			t.Errorf("%d attempts in %d minutes", n, minutes)
		}
		refuse.Store(false)
		time.Sleep(time.Minute) // the pipeline waits as long before it joins again
		stop := s.rerun(a)
		s.until("joined again", a.has(2))
		s.produceAs(t, "t", p.ID, "w")
		r.until(2*time.Minute, func() bool { return r.records() == 2 })
		stop()
	})
}

// TestRenewedPassword: if the password file of a refused member changes, the member does not wait for its next regular
// attempt. It keeps its claims meanwhile.
func TestRenewedPassword(t *testing.T) {
	secured(t, func(t *testing.T, s *cluster, _ func(*Config)) {
		var wants atomic.Value
		wants.Store("\x00sluice\x00right")
		s.fake.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
			s.fake.KeepControl()
			auth := req.(*kmsg.SASLAuthenticateRequest)
			if string(auth.SASLAuthBytes) == wants.Load() {
				auth.SASLAuthBytes = []byte("\x00sluice\x00right")
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode = 58
			return resp, nil, true
		})
		dir := t.TempDir()
		file := certs.Write(t, dir, "password", []byte("right"))
		a := s.start(func(c *Config, _ *GroupConfig) {
			c.SASL = &dial.SASL{Mechanism: dial.Plain, Username: "sluice", PasswordFile: file, InsecurePlaintext: true}
		}, "t")
		s.until("joined", a.has(2))
		wants.Store("\x00sluice\x00new")
		s.until("refused", func() bool { trouble, ok := a.Trouble(); return ok && trouble.Reason == hold.KafkaDenied })
		began := time.Now()
		certs.Write(t, dir, "password", []byte("new"))
		s.until("joined again", a.has(2))
		// The refused member could not leave the group, so the coordinator waits until its session expires.
		if took := time.Since(began); took > defaultSession {
			t.Errorf("joined %v after the password was renewed", took)
		}
		a.told("joined t:0 t:1", "apart t:0 t:1", "joined t:0 t:1")
	})
}

// produceAs produces a record with the credentials of the cluster's user.
func (w *cluster) produceAs(t *testing.T, topic string, partition int32, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.addrs...), kgo.Dialer(w.dial), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.SASL(plain.Auth{User: "sluice", Pass: "right"}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
	if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
