package main

import (
	"errors"
	"fmt"
	"time"

	"sluice/health/liveness"
	"sluice/internal/fail"
)

// probeFile prints ok if the process that writes a liveness file is alive, and otherwise returns an error of
// [fail.KindFound].
func (c *cli) probeFile(path string) error {
	if err := liveness.Fresh(path, time.Now()); err != nil {
		return fail.Found(fmt.Errorf("probe: %w", err))
	}
	_, err := fmt.Fprintln(c.stdout, "ok")
	return err
}

// errOnlyLive means that the operator asked a liveness file for readiness or startup, which it cannot show.
var errOnlyLive = errors.New("a liveness file only shows whether a process is alive: ask for live, or over HTTP")
