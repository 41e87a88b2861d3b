// Package lab starts real servers for tests, without containers: Apache Kafka, MinIO, Python readers and Spark. It also
// has the proxies that break the connections between these servers and the connector.
//
// All servers listen on 127.0.0.1 at free ports, keep their data in a folder of the caller, and are ended by process
// id. The script test/lab/install downloads each part once, into the cache that [Home] names. If a part is missing and
// cannot be installed, tests fail; they never skip.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Home returns the folder of downloads: $SLUICE_LAB, or sluice/lab in the user's cache.
func Home() (string, error) {
	if dir := os.Getenv("SLUICE_LAB"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "sluice", "lab"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the test lab's cache: %w", err)
	}
	return filepath.Join(home, ".cache", "sluice", "lab"), nil
}

// Root returns the top folder of the checkout that contains the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the checkout: no go.mod above the working directory")
		}
	}
}

// Install installs a part of the lab if it is missing ("kafka-4.3.1", "minio", "readers", "spark"), and returns its
// folder.
func Install(ctx context.Context, part string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "test", "lab", "install"), part)
	var text strings.Builder
	cmd.Stderr = &text
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("install %s: %w: %s", part, err, text.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// given are the addresses that FreeAddr has returned to this process. The system may return a closed port again, and a
// broker needs several ports before it listens on the first.
var given sync.Map

// FreeAddr returns an address of 127.0.0.1 without a listener, a different one for each call.
func FreeAddr() (string, error) {
	for {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		addr := l.Addr().String()
		if err := l.Close(); err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		if _, twice := given.LoadOrStore(addr, true); !twice {
			return addr, nil
		}
	}
}

// Until calls check every 50 ms until it returns true. It returns the error of check, or that of ctx when ctx ends.
func Until(ctx context.Context, check func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := check()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
