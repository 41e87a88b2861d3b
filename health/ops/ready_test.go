package ops

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadiness_NeverReady: if a member is not ready after startupGrace, the log says so once.
func TestReadiness_NeverReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := &Server{logger: slog.New(slog.NewTextHandler(&out, nil))}
		check := func(err error, times int) int {
			out.Reset()
			for range times {
				s.logReady(t.Context(), err)
				time.Sleep(5 * time.Second)
			}
			return strings.Count(out.String(), "Readiness check FAILED")
		}
		away := errors.New("not joined: kafka group: connection refused")
		if n := check(away, 12); n != 0 {
			t.Errorf("%d lines while it may still start", n)
		}
		if n := check(away, 100); n != 1 || !strings.Contains(out.String(), "connection refused") {
			t.Errorf("%d lines: %s", n, &out)
		}
		if check(nil, 1); !strings.Contains(out.String(), "Readiness check passed again") {
			t.Errorf("%s", &out)
		}
		if n := check(away, 2); n != 1 {
			t.Errorf("%d lines when readiness is lost", n)
		}
	})
}
