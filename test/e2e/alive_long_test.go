//go:build lab && long && linux

package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// TestAFrozenMemberForLong is TestMember_Frozen with a freeze that is longer than a loop may go without progress.
func TestAFrozenMemberForLong(t *testing.T) {
	t.Parallel()
	frozen(t, 90*time.Second)
}

// TestAWedgedMemberIsNotAlive blocks every loop of a member. Then /health/live must return 503, and the liveness file
// must be deleted.
func TestAWedgedMemberIsNotAlive(t *testing.T) {
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
