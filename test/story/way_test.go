package story_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/test/story"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestTrace expects the requests and writes of a member that are visible outside of the process to be those in
// testdata/way.txt, in the same order.
func TestTrace(t *testing.T) {
	trace := traced(t, nil, func(t *testing.T, h *story.Harness, say func(format string, args ...any)) {
		say("# joins, and finds an empty table")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "initial commit", func() bool { return h.Position(0) == 0 && h.Offsets()[0] == 0 && len(h.Offsets()) == 1 })
		say("# three records and a control batch come")
		h.Broker.Produce(story.Topic, 0, "rrrc", "a")
		eventually(t, "end", func() bool { return h.AtEnd() && h.Offsets()[0] == 4 })
		say("# another record comes, and the member is stopped")
		h.Broker.Produce(story.Topic, 0, "r", "a")
		eventually(t, "read", func() bool { return p.Connector.Status().Claims[0].Next == 5 })
		h.Stop(p)
		say("# starts again where the table stands")
		p = h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "resumed", func() bool { s := p.Connector.Status(); return len(s.Claims) == 1 && s.Claims[0].Position == 5 })
		h.Stop(p)
	})
	wantGolden(t, "way.txt", trace)
}

// TestTrace_BadRecord expects the same kind of events around bad records to be those in testdata/letters.txt. A letter
// is durable before the position passes its record. If the position is set back before the record, the member writes
// the letter again.
func TestTrace_BadRecord(t *testing.T) {
	trace := traced(t, &story.LetterLog{}, func(t *testing.T, h *story.Harness, say func(format string, args ...any)) {
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "initial commit", func() bool { return h.Position(0) == 0 && h.Offsets()[0] == 0 && len(h.Offsets()) == 1 })
		say("# good and bad records come")
		h.Broker.Produce(story.Topic, 0, "rprrp", "a")
		eventually(t, "end", func() bool { return h.AtEnd() && h.Offsets()[0] == 5 })
		say("# a bad record comes alone")
		h.Broker.Produce(story.Topic, 0, "p", "a")
		eventually(t, "end", func() bool { return h.AtEnd() && h.Offsets()[0] == 6 })
		say("# others set the position back between the letters and their commit")
		moved := false
		p.Table.Broken = func(step string) error {
			if step == "refresh" && !moved {
				moved = true
				h.Log.Append(story.Version{Commit: h.Forged(0, 5)})
			}
			return nil
		}
		h.Broker.Produce(story.Topic, 0, "p", "a")
		eventually(t, "end", func() bool { return h.AtEnd() && h.Offsets()[0] == 7 })
		h.Stop(p)
	})
	wantGolden(t, "letters.txt", trace)
}

// traced plays a scenario and returns the events that are visible outside of the process, a line each, with the lines
// that play adds by say.
func traced(t *testing.T, letters *story.LetterLog, play func(t *testing.T, h *story.Harness, say func(format string, args ...any))) string {
	t.Helper()
	var (
		mu    sync.Mutex
		trace strings.Builder
	)
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&trace, format+"\n", args...)
	}
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Trace, h.Letters = say, letters
		play(t, h, say)
	})
	return trace.String()
}

func wantGolden(t *testing.T, name, trace string) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, []byte(trace), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), trace); diff != "" {
		t.Errorf("-want +got (go test -update writes it anew)\n%s", diff)
	}
}
