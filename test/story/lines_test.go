package story_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// said collects the JSON log lines of a harness. It may be read while members write to it.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

// lines returns the parsed lines whose message begins with msg.
func (s *said) lines(t *testing.T, msg string) (all []map[string]any) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for text := range strings.Lines(s.text.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line["msg"].(string), msg) {
			all = append(all, line)
		}
	}
	return all
}

// batches returns the distinct batch ids of the lines whose message begins with msg.
func (s *said) batches(t *testing.T, msg string) (ids []string) {
	t.Helper()
	for _, line := range s.lines(t, msg) {
		if id, _ := line["batch_id"].(string); id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// hear returns a log, to which all members log that begin after this call.
func hear(h *story.Harness) *said {
	out := &said{}
	h.Logger = slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return out
}

// TestLog_BatchID expects the batch id in each log line about a batch, from sealing to the committed offsets, and the
// number of rows and health-check records in the line about its commit.
func TestLog_BatchID(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		out := hear(h)
		h.Broker.Produce(story.Topic, 0, "rrtrh", "k")
		h.Broker.Produce(story.Topic, 1, "rr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "end", h.AtEnd)
		h.Stop(p)
		sealed := out.batches(t, "batch sealed")
		if len(sealed) == 0 {
			t.Fatal("no sealed batch has an id")
		}
		for _, msg := range []string{"staged", "committed"} {
			if got := out.batches(t, msg); !slices.Equal(got, sealed) {
				t.Errorf("%s: batches %v, sealed were %v", msg, got, sealed)
			}
		}
		for _, id := range out.batches(t, "Scheduled checkpointing of a partition") {
			if !slices.Contains(sealed, id) {
				t.Errorf("group offsets of batch %q, sealed were %v", id, sealed)
			}
		}
		var rows, health, version float64
		for _, line := range out.lines(t, "committed") {
			rows, health = rows+line["rows"].(float64), health+line["health_records"].(float64)
			if at := line["version"].(float64); at <= version || line["level"] != "INFO" || line["oldest_age"].(float64) <= 0 {
				t.Errorf("behind version %v: %v", version, line)
			} else {
				version = at
			}
		}
		if rows != 5 || health != 1 {
			t.Errorf("the commits say %v rows and %v health-check records", rows, health)
		}
		for _, v := range h.Log.Versions() {
			if id := v.Commit.Batch; len(v.Rows) > 0 && !slices.Contains(sealed, id) {
				t.Errorf("a version of batch %q, sealed were %v", id, sealed)
			}
		}
	})
}

// TestLog_OutcomeHasBatchID expects the batch id in the log line about a batch that does not commit: it was fenced, it
// failed, its claim was held, or it has a bad record.
func TestLog_OutcomeHasBatchID(t *testing.T) {
	for _, c := range []struct {
		name, kinds, line string
		broken            func(h *story.Harness, step string) error
	}{
		{"fenced", "rr", "FENCED", func(h *story.Harness, step string) error {
			if step == "put data files" {
				h.Log.Append(story.Version{Commit: h.Forged(0, 1)})
			}
			return nil
		}},
		{"failed for an unknown reason", "rr", "commit failed for an unknown reason", func(_ *story.Harness, step string) error {
			if step == "put data files" {
				return errors.New("what is this")
			}
			return nil
		}},
		{"failed in our own work", "rr", "Retry attempt", func(*story.Harness, string) error {
			return connector.Local("encode", errors.New("what is this"))
		}},
		{"held", "rr", "HOLD", func(_ *story.Harness, step string) error {
			if step == "put data files" {
				return hold.New(hold.StoreDenied, "403", nil)
			}
			return nil
		}},
		{"a bad record", "rp", "HOLD", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			scenario(t, 1, func(t *testing.T, h *story.Harness) {
				out := hear(h)
				h.Retry = thrice
				var once atomic.Bool
				h.Broken = func(step string) error {
					if c.broken == nil || step != "put data files" || once.Swap(true) {
						return nil
					}
					return c.broken(h, step)
				}
				h.Broker.Produce(story.Topic, 0, c.kinds, "k")
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0))
				eventually(t, c.line, func() bool { return len(out.lines(t, c.line)) > 0 })
				sealed := out.batches(t, "batch sealed")
				if got := out.batches(t, c.line); len(got) != 1 || !slices.Contains(sealed, got[0]) {
					t.Errorf("%s of batches %v, sealed were %v: %v", c.line, got, sealed, out.lines(t, c.line))
				}
				if line := out.lines(t, c.line)[0]; c.broken == nil && line["correlation_id"] == nil {
					t.Errorf("the bad record has no correlation id: %v", line)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestLog_RetryAttempts expects a log line for each retry that record_retry allows after the decoder failed, and a line
// that names the record when it is given up.
func TestLog_RetryAttempts(t *testing.T) {
	ours(t, 1, func(t *testing.T, h *story.Harness) {
		out := hear(h)
		h.Broker.Produce(story.Topic, 0, "rrxr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		var attempts []string
		for _, line := range out.lines(t, "Retry attempt") {
			attempts = append(attempts, line["attempt"].(string))
			if line["level"] != "WARN" || line["batch_id"] == nil {
				t.Errorf("%v", line)
			}
		}
		if !slices.Equal(attempts, []string{"1/3", "2/3", "3/3"}) {
			t.Errorf("attempts %v", attempts)
		}
		given, letters := out.lines(t, "Giving up"), out.lines(t, "DEAD LETTER")
		if len(given) != 1 || len(letters) != 1 || given[0]["level"] != "ERROR" || given[0]["offset"] != 2.0 ||
			given[0]["correlation_id"] != letters[0]["correlation_id"] {
			t.Errorf("given up: %v, letters: %v", given, letters)
		}
	})
}
