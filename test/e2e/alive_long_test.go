//go:build lab && long && linux

package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// TestMember_FrozenForLong: a member survives a freeze that is longer than the watchdog allows a loop to be stuck.
func TestMember_FrozenForLong(t *testing.T) {
	t.Parallel()
	frozen(t, 90*time.Second)
}

// TestMember_WedgedIsNotAlive: a minute after all goroutines of a member block, /health/live answers 503 and the
// liveness file is gone.
func TestMember_WedgedIsNotAlive(t *testing.T) {
	t.Parallel()
	wedged(t, func(s *scene, url, path string) {
		s.await("/health/live says 503", func() (bool, error) {
			ctx, cancel := context.WithTimeout(s.ctx, time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health/live", nil)
			if err != nil {
				return false, err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return false, err
			}
			defer resp.Body.Close()
			return resp.StatusCode == http.StatusServiceUnavailable, nil
		})
		s.awaitProbe(path, 1, "no file")
	})
}
