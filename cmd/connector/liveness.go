package main

import (
	"errors"
	"fmt"
	"time"

	"sluice/health/liveness"
	"sluice/internal/fail"
)

// endWithin is how long a process that was told to stop may take beyond shutdown.drain to leave the group, end what runs
// in the background and close its connections. With what a drain usually is that stays below the 30 s after which
// Kubernetes kills.
const endWithin = 8 * time.Second

// probeFile looks whether the process that keeps a liveness file is alive.
func (c *cli) probeFile(path string) error {
	if err := liveness.Fresh(path, time.Now()); err != nil {
		return fail.Found(fmt.Errorf("probe: %w", err))
	}
	_, err := fmt.Fprintln(c.stdout, "ok")
	return err
}

// errOnlyLive says what a file cannot tell.
var errOnlyLive = errors.New("a liveness file only tells whether a process lives: ask for live, or over HTTP")
