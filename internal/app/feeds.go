package app

import (
	"sluice/connector"
	"sluice/reliability/hold"
)

// feeds implements [intake.Tables] for a member: it opens tables for the reader and closes them.
type feeds struct{ of *Member }

// Open implements intake.Tables.
func (f feeds) Open(topic string) (connector.TopicConfig, connector.Target, bool) {
	return f.of.route(topic)
}

// Retire implements intake.Tables.
func (f feeds) Retire(table string) (closed func()) { return f.of.retire(table) }

// Blocked implements intake.Tables.
func (f feeds) Blocked(table string, p connector.Partition) *hold.Hold {
	return f.of.blocked(table, p)
}

// decisions implements the interfaces through which the pipeline reads operators' decisions from the operations log.
type decisions struct{ of *Member }

// Paused implements intake.Decisions.
func (d decisions) Paused(p connector.Partition) *hold.Hold { return d.of.paused(p) }

// FloodAllowed implements commit.Decisions.
func (d decisions) FloodAllowed(topic string) bool { return d.of.floodAllowed(topic) }

// Rechecks implements intake.Decisions.
func (d decisions) Rechecks(p connector.Partition) int64 { return d.of.asked(p) }

// Flushes implements intake.Decisions.
func (d decisions) Flushes(p connector.Partition) int64 {
	return d.of.operations.State().FlushRequested(p.Topic)
}
