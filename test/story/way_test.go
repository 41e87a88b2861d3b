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

// TestWay is what the world outside sees of a record's way, in order.
func TestWay(t *testing.T) {
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
		w.Trace = say
		say("# joins, and finds an empty table")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		eventually(t, "START", func() bool { return w.Position(0) == 0 && w.Offsets()[0] == 0 && len(w.Offsets()) == 1 })
		say("# three records and a control batch come")
		w.Broker.Produce(story.Topic, 0, "rrrc", "a")
		eventually(t, "end", func() bool { return w.AtEnd() && w.Offsets()[0] == 4 })
		say("# another record comes, and it is told to stop")
		w.Broker.Produce(story.Topic, 0, "r", "a")
		eventually(t, "read", func() bool { return p.Connector.Status().Claims[0].Next == 5 })
		w.Stop(p)
		say("# starts again where the table stands")
		p = w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		eventually(t, "resumed", func() bool { s := p.Connector.Status(); return len(s.Claims) == 1 && s.Claims[0].Position == 5 })
		w.Stop(p)
	})
	golden := filepath.Join("testdata", "way.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(trace.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), trace.String()); diff != "" {
		t.Errorf("-want +got (go test -update writes it anew)\n%s", diff)
	}
}
