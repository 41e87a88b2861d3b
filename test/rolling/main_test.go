//go:build lab

// Package rolling runs members of an earlier version and of this version in one group, on the same tables and the same
// operations log. The file earlier names the commit of the earlier version. The broker runs in the test's process, and the
// tables are in a local directory.
package rolling

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice/test/lab"
)

// A version is a build of the connector.
type version struct {
	name   string
	binary string
}

// before and now are the versions that the tests compare. TestMain builds them.
var before, now version

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rolling:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sluice-rolling-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, err := lab.Root()
	if err != nil {
		return 1, err
	}
	text, err := os.ReadFile("earlier")
	if err != nil {
		return 1, err
	}
	lines := strings.Fields(string(text))
	commit := lines[len(lines)-1]
	source := filepath.Join(dir, "source")
	if err := export(ctx, root, commit, source); err != nil {
		return 1, err
	}
	before = version{"before", filepath.Join(dir, "connector-before")}
	now = version{"now", filepath.Join(dir, "connector-now")}
	for folder, v := range map[string]version{source: before, root: now} {
		if _, err := command(ctx, folder, "go", "build", "-tags", "nodemo", "-o", v.binary, "./cmd/connector"); err != nil {
			return 1, fmt.Errorf("build the version %s: %w", v.name, err)
		}
	}
	return m.Run(), nil
}

// export writes the files of a commit into a new folder to. A clone without that commit fetches it from its origin.
func export(ctx context.Context, root, commit, to string) error {
	if _, err := command(ctx, root, "git", "cat-file", "-e", commit+"^{commit}"); err != nil {
		if _, fetched := command(ctx, root, "git", "fetch", "--quiet", "--depth", "1", "origin", commit); fetched != nil {
			return fmt.Errorf("this clone does not have the commit %s, which the file earlier names, and cannot fetch it: "+
				"run git fetch --unshallow, or clone without --depth: %w", commit, fetched)
		}
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	archive, err := command(ctx, root, "git", "archive", "--format", "tar", commit)
	if err != nil {
		return err
	}
	tar := exec.CommandContext(ctx, "tar", "-x", "-C", to)
	tar.Stdin = bytes.NewReader(archive)
	if out, err := tar.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack the commit %s: %w: %s", commit, err, out)
	}
	return nil
}

// command returns what a program writes to stdout.
func command(ctx context.Context, dir string, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv[:2], " "), err, strings.TrimSpace(errs.String()))
	}
	return out, nil
}
