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

// TestTrace compares the visible events of a record, in order.
func TestTrace(t *testing.T) {
	trace := traced(t, nil, func(t *testing.T, w *story.World, say func(format string, args ...any)) {
		say("# joins, and finds an empty table")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		eventually(t, "initial commit", func() bool { return w.Position(0) == 0 && w.Offsets()[0] == 0 && len(w.Offsets()) == 1 })
		say("# three records and a control batch come")
		w.Broker.Produce(story.Topic, 0, "rrrc", "a")
		eventually(t, "end", func() bool { return w.AtEnd() && w.Offsets()[0] == 4 })
		say("# another record comes, and the member is stopped")
		w.Broker.Produce(story.Topic, 0, "r", "a")
		eventually(t, "read", func() bool { return p.Connector.Status().Claims[0].Next == 5 })
		w.Stop(p)
		say("# starts again where the table stands")
		p = w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		eventually(t, "resumed", func() bool { s := p.Connector.Status(); return len(s.Claims) == 1 && s.Claims[0].Position == 5 })
		w.Stop(p)
	})
	wantGolden(t, "way.txt", trace)
}

// TestTrace_BadRecord: its letter is durable before the position passes it. A member that finds the position before
// the record writes the letter again.
func TestTrace_BadRecord(t *testing.T) {
	trace := traced(t, &story.LetterLog{}, func(t *testing.T, w *story.World, say func(format string, args ...any)) {
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		eventually(t, "initial commit", func() bool { return w.Position(0) == 0 && w.Offsets()[0] == 0 && len(w.Offsets()) == 1 })
		say("# good and bad records come")
		w.Broker.Produce(story.Topic, 0, "rprrp", "a")
		eventually(t, "end", func() bool { return w.AtEnd() && w.Offsets()[0] == 5 })
		say("# a bad record comes alone")
		w.Broker.Produce(story.Topic, 0, "p", "a")
		eventually(t, "end", func() bool { return w.AtEnd() && w.Offsets()[0] == 6 })
		say("# others set the position back between the letters and their commit")
		moved := false
		p.Table.Broken = func(step string) error {
			if step == "refresh" && !moved {
				moved = true
				w.Log.Append(story.Version{Commit: w.Forged(0, 5)})
			}
			return nil
		}
		w.Broker.Produce(story.Topic, 0, "p", "a")
		eventually(t, "end", func() bool { return w.AtEnd() && w.Offsets()[0] == 7 })
		w.Stop(p)
	})
	wantGolden(t, "letters.txt", trace)
}

// traced plays a scene and returns the events that are visible outside of the process.
func traced(t *testing.T, letters *story.LetterLog, play func(t *testing.T, w *story.World, say func(format string, args ...any))) string {
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
	scene(t, 1, func(t *testing.T, w *story.World) {
		w.Trace, w.Letters = say, letters
		play(t, w, say)
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
