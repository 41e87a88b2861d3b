package app

import (
	"fmt"
	"time"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/health"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// This file turns the status of the pipeline into a report of the package health.

// blocked returns the hold that the status shows for a claim while a request of the claim, or a commit of its table,
// waits for a dependency. It returns nil if none waits. The pipeline does not hold such a claim: the request waits in
// its guard, and continues once the dependency responds.
func (s *Member) blocked(table string, p connector.Partition) *hold.Hold {
	if t := s.tables.get(table); t != nil {
		if h, undecided := t.Undecided(); undecided {
			return &h
		}
		if h := waiting(t.storeGuard, hold.StoreDown); h != nil {
			return h
		}
		if h := waiting(t.letters.guard, hold.DeadLettersUnavailable); h != nil {
			return h
		}
	}
	if t := s.tables.get(table); s.fingerprintGuard != nil && t != nil && t.duplicates != nil {
		if h := waiting(s.fingerprintGuard, hold.FingerprintsUnavailable); h != nil {
			return h
		}
	}
	// If a broker or the claim itself is in trouble, show that instead of the open breaker of Kafka. Trouble does not end
	// while the breaker lets a probe pass, and it says exactly when the failures began.
	trouble, ok := s.log.TroubleOf(p)
	if ok && (trouble.Reason != hold.KafkaDown || time.Since(trouble.Since) >= troubling) {
		return &hold.Hold{Reason: trouble.Reason, Detail: trouble.Err.Error(), Since: trouble.Since}
	}
	return waiting(s.kafkaGuard, hold.KafkaDown)
}

// waiting returns the hold of claims whose requests wait in the guard g, with this reason. It returns nil unless the
// breaker of g is open.
func waiting(g *reliability.Guard, reason hold.Reason) *hold.Hold {
	st := g.Status()
	if !st.Open {
		return nil
	}
	h := &hold.Hold{Reason: reason, Detail: "the circuit breaker is open", Since: st.Failing}
	if st.Err != nil {
		h.Detail = st.Err.Error()
	}
	return h
}

// troubling is how long a broker must not have responded before its claims show a hold. The move of a leader usually
// takes less.
const troubling = 30 * time.Second

// Flushes returns what became of the newest request to flush each table.
func (s *Member) Flushes() []connector.Flush { return s.pipeline.Status().Flushes }

// Report returns the status of the pipeline as the health server shows it.
func (s *Member) Report() health.Report {
	st := s.pipeline.Status()
	r := health.Report{
		Pipeline: s.config.Pipeline, Group: s.config.Kafka.Group, Member: s.pipeline.Member, Brokers: s.config.Kafka.Brokers,
		Joined: st.Joined, Resumed: st.Resumed, Started: st.Started, Draining: st.Draining, Tested: s.tested.Load(),
		Fingerprints: s.remembered(), Memory: s.memory(), Queued: st.Queued, Paused: st.Paused, Operations: s.operated(),
	}
	found := s.lags.found()
	switch {
	case found != nil:
		r.Lag = &found.Status
	case s.lags != nil: // before the first poll
		r.Lag = &health.LagStatus{Healthy: true}
	}
	for _, c := range st.Claims {
		r.Partitions = append(r.Partitions, s.partition(c, found))
		if h := c.Hold; h != nil {
			r.Holds = append(r.Holds, health.Hold{
				Topic: c.Partition.Topic, Partition: c.Partition.ID, Reason: string(h.Reason), Detail: h.Detail, Since: h.Since, Offset: h.Offset,
			})
		}
	}
	for _, a := range s.group.Absent() {
		r.Holds = append(r.Holds, health.Hold{Topic: a.Topic, Partition: -1, Reason: string(a.Reason), Detail: a.Detail, Since: a.Since, Offset: -1})
	}
	if h := s.unknownPauses(); h != nil {
		r.Holds = append(r.Holds, health.Hold{Partition: -1, Reason: string(h.Reason), Detail: h.Detail, Since: h.Since, Offset: -1})
	}
	if h := s.refused.Load(); h != nil {
		r.Holds = append(r.Holds, health.Hold{Partition: -1, Reason: string(h.Reason), Detail: h.Detail, Since: h.Since, Offset: -1})
	}
	if trouble, ok := s.group.Trouble(); ok && len(st.Claims) == 0 { // if there are claims, each of them shows its hold
		r.Holds = append(r.Holds, health.Hold{
			Partition: -1, Reason: string(trouble.Reason), Detail: trouble.Err.Error(), Since: trouble.Since, Offset: -1,
		})
	}
	for i := range r.Holds {
		r.Holds[i].Ending = s.ending(r.Holds[i])
	}
	r.Dependencies = s.dependencies()
	if w := s.letters.Load(); w != nil {
		r.Letters = w.report()
	}
	if s.keeper != nil {
		members := s.keeper.Members()
		r.Members = &members
	}
	if s.canary != nil {
		state := s.canary.State()
		r.Canary = &state
	}
	return r
}

// partition returns the progress of a claim in its table, with the verdict of the last poll on its lag.
func (s *Member) partition(c connector.ClaimStatus, found *lagFindings) health.Partition {
	p := found.of(c)
	t, _, _ := s.config.Route(p.Topic)
	p.Thresholds = t.Lag
	oldest := c.Oldest
	if oldest.IsZero() {
		oldest = s.losses.timeOf(c.Partition, c.Position)
	}
	lag, known := p.Lag()
	if c.Hold == nil && c.Oldest.IsZero() && c.Consumed >= p.End { // all records are read, and no record waits for a commit
		lag = 0
	}
	p.Freshness = health.Freshness(time.Now(), lag, known, oldest)
	return p
}

func (s *Member) dependencies() (all []health.Dependency) {
	guarded := func(g *reliability.Guard, table string) {
		st := g.Status()
		d := health.Dependency{Name: st.Name, Table: table, Open: st.Open}
		if st.Err != nil {
			d.Failing, d.Error = &st.Failing, st.Err.Error()
		}
		all = append(all, d)
	}
	for _, t := range s.tables.all() {
		guarded(t.storeGuard, t.path)
		guarded(t.letters.guard, t.path)
	}
	guarded(s.kafkaGuard, "")
	if s.fingerprintGuard != nil {
		guarded(s.fingerprintGuard, "")
	}
	guarded(s.operationsGuard, "")
	if trouble, ok := s.operations.Trouble(); ok {
		all[len(all)-1].Failing, all[len(all)-1].Error = &trouble.Since, trouble.Err.Error()
	}
	failing := func(name string, t kafka.Trouble) {
		all = append(all, health.Dependency{Name: name, Failing: &t.Since, Error: t.Err.Error()})
	}
	if trouble, ok := s.group.Trouble(); ok {
		failing("kafka group", trouble)
	}
	for _, trouble := range s.log.Status() {
		name := "kafka"
		switch {
		case trouble.Broker >= 0:
			name = fmt.Sprintf("kafka broker %d", trouble.Broker)
		case trouble.Partition.Topic != "":
			name = "kafka " + trouble.Partition.String()
		}
		failing(name, trouble)
	}
	return all
}
