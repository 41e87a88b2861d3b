package app

import (
	"context"
	"time"

	"sluice/connector"
	"sluice/health/membership"
	"sluice/internal/open"
)

// register opens the store of registrations, and makes the keeper, which writes the registration of this member to it.
// If the configuration has no such store, s.registrations and s.keeper stay nil.
func (s *Member) register(ctx context.Context) error {
	var err error
	if s.registrations, err = open.Members(ctx, s.config); err != nil || s.registrations == nil {
		return err
	}
	m := s.config.Members
	s.advertiser = &advertiser{config: s.config, logger: s.logger}
	s.keeper, err = membership.NewKeeper(s.registrations, membership.Config{
		ID: s.pipeline.Member, Beat: m.Beat, TTL: m.TTL, Sweep: m.Sweep, Poll: collectWork(s.pipeline.Status), Address: s.advertiser.address,
		Logger: s.logger, Registerer: s.registry,
	})
	return err
}

// collectWork returns a function that returns two values: the time since this member last read a record of any
// partition, and the total lag of its current partitions. Each is -1 while unknown. The function never waits for the
// pipeline.
func collectWork(status func() connector.Status) func() (idle time.Duration, lag int64) {
	var last time.Time
	return func() (time.Duration, int64) {
		st := status()
		lag := int64(-1)
		if !st.At.IsZero() && len(st.Claims) == 0 {
			lag = 0
		}
		for _, c := range st.Claims {
			if c.LastRecord.After(last) {
				last = c.LastRecord
			}
			if c.Position >= 0 && c.End >= 0 {
				lag = max(lag, 0) + c.Lag
			}
		}
		if last.IsZero() {
			return -1, lag
		}
		return max(time.Since(last), 0), lag
	}
}
