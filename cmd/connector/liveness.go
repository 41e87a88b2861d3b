package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sluice/health/liveness"
)

// endWithin is how long a process that was told to stop may take beyond shutdown.drain to leave the group, end what runs
// in the background and close its connections. With what a drain usually is that stays below the 30 s after which
// Kubernetes kills.
const endWithin = 8 * time.Second

// livenessFile accepts the name of a file.
func livenessFile(s string) error {
	if s != "" && (os.IsPathSeparator(s[len(s)-1]) || filepath.Base(s) == "." || filepath.Base(s) == "..") {
		return fmt.Errorf("%q is a folder: name a file in it", s)
	}
	return nil
}

// checkLivenessFile takes the file beside the configuration, which it must not be.
func (l *loader) checkLivenessFile() {
	path := &l.config.Health.LivenessFile
	if *path == "" {
		return
	}
	*path = l.beside(*path)
	file, err := os.Stat(*path)
	if err != nil {
		return
	}
	if own, err := os.Stat(l.file); err == nil && os.SameFile(file, own) {
		l.report(l.at("health.liveness_file"), "this is the configuration itself: name another file")
	}
}

// probeFile looks whether the process that keeps a liveness file is alive.
func (c *cli) probeFile(path string) error {
	if err := liveness.Fresh(path, time.Now()); err != nil {
		return exitError{exitFound, fmt.Errorf("probe: %w", err)}
	}
	_, err := fmt.Fprintln(c.stdout, "ok")
	return err
}

// errOnlyLive says what a file cannot tell.
var errOnlyLive = errors.New("a liveness file only tells whether a process lives: ask for live, or over HTTP")
