package membershiptest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"sluice/health/membership"
	"sluice/health/membership/membershiptest"
)

func TestMemory(t *testing.T) {
	membershiptest.Run(t, func(*testing.T, string) membershiptest.Server {
		var passed atomic.Int64
		m := membershiptest.NewMemory(func() time.Time { return time.Now().Add(time.Duration(passed.Load())) })
		return membershiptest.Server{
			Open: func(_ *testing.T, s membership.Scope) membership.Store { return m.Store(s) },
			Pass: func(d time.Duration) { passed.Add(int64(d)) },
			Unit: 10 * time.Second,
			Lose: func(_ *testing.T, s membership.Scope, id string) { m.Lose(s, id) },
		}
	})
}
