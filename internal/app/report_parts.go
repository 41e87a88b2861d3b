package app

import (
	"maps"
	"slices"

	"sluice/health"
	"sluice/idempotency"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
)

// remembered returns the use of the fingerprint memory by topic, nil if Postgres stores the fingerprints.
func (s *Member) remembered() (all []health.Fingerprints) {
	if s.remembering != s.fingerprints {
		return nil
	}
	held := s.fingerprints.ByTopic()
	for _, name := range s.config.TopicNames() { // topics of which no record was read yet are included
		topic := s.config.Topics[name]
		if _, there := held[name]; !there && topic.ProducerIdentity().By != idempotency.ByNone {
			held[name] = idempotency.MemoryUse{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		all = append(all, health.Fingerprints{Topic: name, Entries: held[name].Entries, Bytes: held[name].Bytes})
	}
	return all
}

// memory returns the sizes of the memory pools and the bytes in use.
func (s *Member) memory() []health.Pool {
	pool := func(name string, p *bytepool.Pool) health.Pool {
		return health.Pool{Name: name, Size: p.Size(), Used: p.Used()}
	}
	all := []health.Pool{pool("fetch", s.pools.Fetch), pool("batch", s.pools.Batch)}
	if st := s.fingerprints.Stats(); st.Limit > 0 {
		all = append(all, health.Pool{Name: "fingerprints", Size: st.Limit, Used: st.Bytes})
	}
	return all
}

// operated returns whether this member has read the operations log, and up to which operation.
func (s *Member) operated() *health.Operations {
	o := &health.Operations{}
	if state := s.operations.State(); state != nil {
		o.Known, o.Seq = true, state.Head().Seq
	}
	return o
}

// ending returns the command that ends a hold, "" if no command does. If the hold is a pause of a whole topic or of the
// whole pipeline, it returns the command that ends that pause.
func (s *Member) ending(h health.Hold) string {
	if h.Reason == string(hold.Paused) {
		if by, paused := s.operations.State().Paused(h.Topic, h.Partition); paused { // if it is not paused any more, an operator resumed it, and the hold ends soon
			h.Topic, h.Partition = by.Target.Topic, by.Target.Partition
		}
	}
	return s.config.Pasted(hold.Reason(h.Reason).Command(h.Topic, h.Partition, h.Offset))
}
