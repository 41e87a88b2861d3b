//go:build lab && linux

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/test/gen"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

// hostile is an input that no correct program sends to a member, and the expected reaction of a member with [limited]
// memory.
type hostile struct {
	name  string
	brief bool   // true if the short suite runs it, too
	input string // the input, as printed in the table of results
	own   string // keys that the attacked topic's entry in the configuration gets
	// lake tampers with objects in the store while no member runs, after both tables were created. It returns settings
	// for the member. lake, before and during may each be nil.
	lake func(a *attack) []setting
	// before prepares servers and topics before the member starts. It returns settings for the member.
	before func(a *attack) []setting
	// during attacks the running member. Its result, if not "", is the reason in the table of results.
	during func(a *attack) string
	// reason is the reason of the hold that the attacked topic must have, with a detail that contains says. If it is "",
	// the log or /health must contain says, and the attacked table must continue.
	reason, says string
}

// attack is a hostile input in progress. A member reads the scene's topic, which is not attacked, and a second topic,
// which is.
type attack struct {
	*scene
	bad string        // name of the attacked topic
	log *tablelog.Log // of the attacked table
	m   *member
	// requests is the number of endless responses that the function streams has sent. sent is the number of spaces in
	// them.
	requests, sent atomic.Int64
}

// result is a row of the table that the test prints.
type result struct {
	input, reason string
	peak          int64 // maximum resident memory of the member, in bytes
	exit          int
}

// TestHostile gives a running member input that only broken or malicious programs produce: objects in the store,
// responses of Redis and Kafka, connections to its port, topics, records. The process must live, keep within its memory
// and report the fault. The attacked table must be held if the input's [hostile] has a reason, and must continue if
// not. The other table must get every record.
//
// E2E_HOSTILE names a file that receives the table of results.
func TestHostile(t *testing.T) {
	t.Parallel()
	rows := slices.Concat(hostileTables(), hostileRedis(), hostileClients(), hostileRecords())
	var mu sync.Mutex
	results := map[string]result{}
	t.Cleanup(func() {
		var b strings.Builder
		b.WriteString("| input | peak RSS, MiB | exit | reason |\n|---|---|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(results)) {
			r := results[name]
			_, _ = fmt.Fprintf(&b, "| %s | %d | %d | %s |\n", r.input, r.peak>>20, r.exit, strings.ReplaceAll(cutText(r.reason, 420), "|", "\\|"))
		}
		t.Logf("memory.limit %s, at most %d MiB\n%s", limited, mostResident>>20, &b)
		if path := os.Getenv("E2E_HOSTILE"); path != "" {
			if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
				t.Error(err)
			}
		}
	})
	note := func(order string, r result) {
		mu.Lock()
		defer mu.Unlock()
		results[order] = r
	}
	for i, h := range rows {
		if !h.brief && !hostileAll {
			continue
		}
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			note(fmt.Sprintf("%02d", i), h.play(t))
		})
	}
	t.Run("broker", func(t *testing.T) { // one broker behind a proxy; each subtest sends one kind of false response
		t.Parallel()
		for i, r := range hostileBroker(t) {
			note(fmt.Sprintf("%02d", len(rows)+i), r)
		}
	})
}

// cutText returns the first line of text. A line of more than most characters is cut after most, and "…" is added.
func cutText(text string, most int) string {
	text, _, _ = strings.Cut(text, "\n")
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// play gives a new member one hostile input and returns its row of the table of results.
func (h hostile) play(t *testing.T) result {
	t.Helper()
	s := newScene(t, 1)
	a := &attack{scene: s, bad: s.name + "-bad"}
	a.log = &tablelog.Log{Store: s.bucket, Table: s.name + "/" + a.bad}
	if err := shared.kafka.CreateTopic(s.ctx, a.bad, 1, map[string]string{"max.message.bytes": "20971520"}); err != nil {
		t.Fatal(err)
	}
	settings := []setting{alsoReads(a.bad + ": {" + h.own + "}"), func(c *settings) { c.memory = limited }}
	s.produce(500)
	a.produceBad(0, 500)
	if h.lake != nil {
		s.untilCurrent(settings...)
		settings = append(settings, h.lake(a)...)
	}
	if h.before != nil {
		settings = append(settings, h.before(a)...)
	}
	a.m = s.start(settings...)
	reason := ""
	if h.during != nil {
		s.awaitRows(500)
		a.awaitBad(500)
		reason = h.during(a)
	}
	s.produce(500)
	if found := a.evidence(h); reason == "" {
		reason = found
	}
	s.awaitRows(1000)
	if h.reason == "" {
		a.produceBad(500, 500)
		a.awaitBad(1000)
		reason = cmp.Or(reason, "none: the table goes on")
	}
	return a.over(h.input, reason)
}

// over drains the member, checks its peak memory, and returns the row of the table of results.
func (a *attack) over(input, reason string) result {
	a.t.Helper()
	a.m.drain()
	r := result{input, reason, a.m.PeakRSS(), a.m.ExitCode()}
	if r.peak > mostResident && bounded() {
		a.t.Errorf("%d MiB resident, the limit and 15 %% are %d", r.peak>>20, mostResident>>20)
	}
	return r
}

// produceBad produces records to the attacked topic.
func (a *attack) produceBad(from, n int64) {
	a.t.Helper()
	p := gen.Producer{Brokers: a.addrs, Topic: a.bad, Orders: a.orders, From: from, Records: n, Codec: "lz4"}
	if err := p.Run(a.ctx, nil); err != nil {
		a.t.Fatal(err)
	}
}

// awaitBad waits until the table of the attacked topic has at least n rows.
func (a *attack) awaitBad(n int64) {
	a.t.Helper()
	a.await(fmt.Sprintf("the attacked table has %d rows", n), func() (bool, error) {
		commits, err := a.log.Read(a.ctx)
		return tablelog.Rows(commits) >= n, err
	})
}

// evidence waits until the member reports the fault as h.reason and h.says demand, and returns the text of that report.
// If h.says is "", it does not wait and returns "".
func (a *attack) evidence(h hostile) (found string) {
	a.t.Helper()
	if h.says == "" {
		return ""
	}
	last := ""
	defer func() {
		if a.t.Failed() {
			a.t.Logf("/health: %s\n%s", last, a.m.Tail())
		}
	}()
	a.await("it says "+h.says, func() (bool, error) {
		resp, err := a.m.get("/health")
		if err != nil {
			if !a.m.Running() {
				return false, err
			}
			return false, nil
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return false, nil
		}
		last = string(body)
		if found = a.held(h, body); found != "" || h.reason != "" {
			return found != "", nil
		}
		found, err = a.m.shows(h.says, last)
		return found != "", err
	})
	return found
}

// held returns "REASON: DETAIL" of the hold of the attacked topic in body, a report of /health. It returns "" if h
// expects no hold, or if no hold has the reason and the detail that h expects.
func (a *attack) held(h hostile, body []byte) string {
	var r struct {
		Holds []struct{ Topic, Reason, Detail string }
	}
	if json.Unmarshal(body, &r) != nil || h.reason == "" {
		return ""
	}
	for _, hold := range r.Holds {
		if strings.HasPrefix(hold.Topic, a.bad) && hold.Reason == h.reason && strings.Contains(hold.Detail, h.says) {
			return hold.Reason + ": " + hold.Detail
		}
	}
	return ""
}

// shows returns where a member reports text: a component of health, a report of /health, with its reason that contains
// text; or else the first line of the log that contains text. It returns "" if neither contains text.
func (m *member) shows(text, health string) (string, error) {
	var r struct {
		Components map[string]struct{ Status, Reason string }
	}
	if json.Unmarshal([]byte(health), &r) == nil {
		for name, c := range r.Components {
			if strings.Contains(c.Reason, text) {
				return name + " " + c.Status + ": " + c.Reason, nil
			}
		}
	}
	log, err := os.ReadFile(m.Log)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, text) {
			var l struct{ Msg, Err string }
			if json.Unmarshal([]byte(line), &l) == nil {
				return strings.TrimSuffix("log: "+l.Msg+": "+l.Err, ": "), nil
			}
		}
	}
	return "", nil
}

// hostileBroker makes one broker send false responses to a member, one kind per subtest, and then true ones again. The
// member must report the false responses, keep within its memory, and in the end have every record in the table.
func hostileBroker(t *testing.T) (results []result) {
	t.Helper()
	proxy, err := lab.StartKafkaProxy()
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, proxy.Close)
	dir, err := folder("hostile-broker")
	if err != nil {
		t.Fatal(err)
	}
	broker, err := lab.StartKafka(t.Context(), lab.KafkaOptions{Dir: dir, Advertise: proxy.Addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Kill() })
	proxy.Connect(broker.Proxied)
	for i, l := range lies {
		if i > 0 && !hostileAll {
			break
		}
		t.Run(l.name, func(t *testing.T) {
			s := newSceneAt(t, broker.Addr)
			if err := broker.CreateTopic(s.ctx, s.name, 1, nil); err != nil {
				t.Fatal(err)
			}
			proxy.Tell(nil)
			a := &attack{scene: s}
			a.m = s.start(func(c *settings) { c.memory, c.brokers = limited, proxy.Addr })
			s.produce(500)
			s.awaitRows(500)
			proxy.Tell(l.lie)
			if l.cut {
				proxy.Cut()
			}
			began := time.Now()
			s.produce(500)
			s.await("the member has received lies", func() (bool, error) { return proxy.Lies() > 0, nil })
			reason := a.evidence(hostile{says: l.says})
			// The member must have retried several times, because the failure may show only when the false response is
			// repeated.
			s.await("the member has received more lies, or stops asking the broker", func() (bool, error) {
				return proxy.Lies() > 5 || time.Since(began) > 10*time.Second, nil
			})
			proxy.Tell(nil)
			proxy.Cut()
			s.awaitRows(1000)
			results = append(results, a.over(l.input, reason))
		})
	}
	return results
}
