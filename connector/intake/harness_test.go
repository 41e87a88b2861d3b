package intake

import (
	"log/slog"
	"testing"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/lane"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// readerOf returns a reader without topics. It replaces each missing value of the configuration by a default for tests.
func readerOf(t *testing.T, c Config) *Reader {
	t.Helper()
	if c.Log == nil {
		c.Log = silent{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	if c.Tables == nil {
		c.Tables = tables{}
	}
	if c.Publish == nil {
		c.Publish = func(*connector.Status) {}
	}
	if c.Queue == (connector.QueueConfig{}) {
		c.Queue = connector.QueueConfig{PauseAt: 1 << 20, ResumeAt: 5, PerKey: 1 << 20}
	}
	if c.Count = max(c.Count, 1); c.Decisions == nil {
		c.Decisions = NoDecisions{}
	}
	if c.Lanes.Metrics == nil {
		c.Lanes.Metrics, c.Lanes.Records = lane.NewMetrics(nil), lane.NewRecordLog(c.Logger)
	}
	c.Writers.Metrics, c.Writers.Logger = commit.NewMetrics(nil), c.Logger
	c.Writers.Kafka = reliability.NewGuard("kafka", reliability.Config{}, c.Logger, nil)
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tables feeds every topic into the same table, "t". The table blocks no claim, unless the function blocked says so.
type tables struct {
	target  connector.Target
	blocked func(table string, p connector.Partition) *hold.Hold
}

func (t tables) Open(string) (connector.TopicConfig, connector.Target, bool) {
	return connector.TopicConfig{Table: "t"}, t.target, true
}

func (t tables) Retire(string) func() { return nil }

func (t tables) Blocked(table string, p connector.Partition) *hold.Hold {
	if t.blocked == nil {
		return nil
	}
	return t.blocked(table, p)
}
