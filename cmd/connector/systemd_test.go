package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// unit returns the settings of a unit of systemd, as Section.Key, each with its values in their order.
func unit(t *testing.T, text string) map[string][]string {
	t.Helper()
	settings, section := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, isSection := strings.CutPrefix(line, "[")
		switch key, value, found := strings.Cut(line, "="); {
		case line == "" || line[0] == '#':
		case isSection:
			section = strings.TrimSuffix(name, "]")
		case found && section != "":
			settings[section+"."+key] = append(settings[section+"."+key], value)
		default:
			t.Errorf("no setting: %q", line)
		}
	}
	return settings
}

// TestSystemd checks the units in deploy/systemd: their commands have the flags of ours, the time to stop is that of the drain
// and 10 s more, and only a wrong configuration ends the restarts. If systemd is installed, it must accept the units.
func TestSystemd(t *testing.T) {
	t.Parallel()
	const folder, binary = "../../deploy/systemd", "/usr/local/bin/connector"
	files, err := filepath.Glob(filepath.Join(folder, "*.*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%v: %v", files, err)
	}
	member := unit(t, read(t, filepath.Join(folder, "connector.service")))
	start := member["Service.ExecStart"]
	if len(start) != 1 || start[0] != binary+" run --config /etc/sluice/config.yaml" {
		t.Errorf("ExecStart=%q", start)
	}
	if err := parsed(strings.TrimPrefix(start[0], "/usr/local/bin/")); err != nil {
		t.Errorf("%s: %v", start[0], err)
	}
	stop, err := time.ParseDuration(member["Service.TimeoutStopSec"][0])
	if drain := mustLoad(t, shipped, nil).Shutdown.Drain; err != nil || stop != drain+10*time.Second {
		t.Errorf("TimeoutStopSec=%v, the drain takes %s: %v", member["Service.TimeoutStopSec"], drain, err)
	}
	if got := member["Service.RestartPreventExitStatus"]; !slices.Equal(got, []string{"2"}) || exitUsage != 2 {
		t.Errorf("RestartPreventExitStatus=%v, a wrong configuration ends with %d", got, exitUsage)
	}
	if got := member["Service.User"]; !slices.Equal(got, []string{"sluice"}) {
		t.Errorf("User=%v, docs/systemd.md creates sluice", got)
	}
	alive := unit(t, read(t, filepath.Join(folder, "connector-alive.service")))["Service.ExecStart"][0]
	_, probe, _ := strings.Cut(alive, "/usr/local/bin/")
	probe, _, _ = strings.Cut(probe, " &&")
	if err := parsed(probe); err != nil || probe != "connector probe live --config /etc/sluice/config.yaml" {
		t.Errorf("%q: %v", probe, err)
	}

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // the settings above are checked on every machine
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "connector"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	args := []string{"verify"}
	for _, file := range files {
		to := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(to, []byte(strings.ReplaceAll(read(t, file), binary, filepath.Join(dir, "connector"))), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, to)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}
