package plan

import (
	"errors"
	"testing"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// TestReplay_Precondition: a replay may be committed only to its own table, directly after the replay that it
// continues, and if the positions have passed its records.
func TestReplay_Precondition(t *testing.T) {
	p := connectortest.Partition(0)
	position, mark, replays := p.AppID("pipe"), idempotency.TableAppID("pipe", "T"), idempotency.ReplayAppID("pipe", "T")
	good := func() *Replay {
		return &Replay{Pipeline: "pipe", TableID: "T", Intent: 12, After: 7, Passed: map[connector.Partition]int64{p: 100}}
	}
	for name, c := range map[string]struct {
		change    func(*Replay)
		positions map[string]int64
		want      classify.Class // 0: it may be committed
		held      hold.Reason
	}{
		"as planned":           {nil, map[string]int64{position: 100, mark: 0, replays: 7}, 0, ""},
		"position further":     {nil, map[string]int64{position: 101, mark: 0, replays: 7}, 0, ""},
		"first replay":         {func(r *Replay) { r.After = 0 }, map[string]int64{position: 100, mark: 0}, 0, ""},
		"another was first":    {nil, map[string]int64{position: 100, mark: 0, replays: 9}, classify.Fenced, ""},
		"another was first, 0": {func(r *Replay) { r.After = 0 }, map[string]int64{position: 100, mark: 0, replays: 9}, classify.Fenced, ""},
		"restored":             {nil, map[string]int64{position: 100, mark: 0}, classify.Fenced, ""},
		"position set back":    {nil, map[string]int64{position: 99, mark: 0, replays: 7}, classify.Fenced, ""},
		"no position":          {nil, map[string]int64{mark: 0, replays: 7}, classify.Fenced, ""},
		"not this table":       {func(r *Replay) { r.TableID = "U" }, map[string]int64{position: 100, mark: 0, replays: 7}, classify.Fenced, ""},
		"not our table":        {nil, map[string]int64{position: 100, replays: 7}, classify.Fatal, hold.TableReplaced},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			if c.change != nil {
				c.change(r)
			}
			err := r.Precondition(connectortest.Snapshot(c.positions))
			var held *hold.Error
			errors.As(err, &held)
			switch {
			case (err == nil) != (c.want == 0), err != nil && c.held == "" && classify.Of(err) != c.want:
				t.Errorf("%v, want class %v", err, c.want)
			case c.held != "" && (held == nil || held.Reason != c.held):
				t.Errorf("%v, want hold %s", err, c.held)
			}
		})
	}
}
