package main

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/app"
	"sluice/internal/laketest"
)

// runs runs the program with this configuration and expects an exit code.
func (l *lake) runs(code int, args ...string) (stdout, stderr string) {
	l.T.Helper()
	got, out, errs := connectorRun(l.T, append(patient(code, args), "--config", l.Config)...)
	if got != code {
		l.T.Errorf("%v: exit code %d, want %d\n%s\n%s", args, got, code, out, errs)
	}
	return out, errs
}

// patient raises the time limit of a command that must succeed, because a busy machine may be slow.
func patient(code int, args []string) []string {
	asks := args[0] == "check" || args[0] == "holds" && !slices.Contains(args, "recheck") || slices.Equal(args[:min(2, len(args))], []string{"offsets", "show"})
	if code != exitOK && code != exitFound || !asks || slices.Contains(args, "--timeout") {
		return args
	}
	return append(slices.Clone(args), "--timeout", "5m")
}

// start runs the connector until the test ends. The connector checks every 200 ms for new and deleted topics.
func (l *lake) start() *app.Member {
	l.T.Helper()
	cfg := mustLoad(l.T, l.Config, nil)
	s, err := app.New(l.T.Context(), cfg, app.Options{WatchEvery: 200 * time.Millisecond, FrontEnd: opsAPI(cfg, &slog.LevelVar{}, l.Logger)}, l.Logger)
	if err != nil {
		l.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(l.T.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	l.T.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			l.T.Error(err)
		}
		s.Close()
	})
	return s
}

// heldIn returns the held partitions of a running member by topic and reason. If a whole topic is held, its partition
// is -1.
func heldIn(s *app.Member) map[string][]int32 {
	held := map[string][]int32{}
	for _, h := range s.Report().Holds {
		at := h.Topic + " " + h.Reason
		held[at] = append(held[at], h.Partition)
	}
	return held
}

// lake is a [laketest.Lake]: a broker, a directory for tables and a configuration. Tests run the program on it.
type lake struct{ laketest.Lake }

func newLake(t *testing.T, sections string) *lake {
	t.Helper()
	return &lake{*laketest.New(t, sections)}
}

func newLakeOn(t *testing.T, sections, section string, producer []kgo.Opt, broker ...kfake.Opt) *lake {
	t.Helper()
	return &lake{*laketest.NewOn(t, sections, section, producer, broker...)}
}

// as returns the lake with a changed configuration: the text in was is replaced by the text in is.
func (l *lake) as(was, is string) *lake { return &lake{*l.As(was, is)} }
