//go:build lab

// Package e2e runs the connector's binary against real Kafka and MinIO, breaks the servers and connections around it,
// and compares the table with the produced records.
//
// The tests share one broker, one S3 server and one build of the binary. Each test has its own topic, table and
// consumer group. Most tests run in parallel, because they mostly wait for sessions to end. Tests that stop the broker
// or need both cores run first, alone. The build tag long adds cases that take minutes. E2E_KAFKA=3.9.1 runs the tests
// with that version of the broker.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sluice/test/lab"
)

// shared has the servers and the binary that all tests use.
var shared struct {
	dir    string
	binary string
	kafka  *lab.Kafka
	cable  *lab.TCPProxy // in front of the broker's second listener
	minio  *lab.MinIO
	bucket *lab.Bucket
}

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if shared.dir, err = os.MkdirTemp("", "sluice-e2e-"); err != nil {
		return 1, err
	}
	defer func() {
		if code == 0 && err == nil { // otherwise a person needs the logs in the folder
			err = os.RemoveAll(shared.dir)
		}
	}()
	if err := build(ctx); err != nil {
		return 1, err
	}
	if shared.cable, err = lab.StartTCPProxy(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.cable.Close()) }()
	dir, err := folder("kafka")
	if err != nil {
		return 1, err
	}
	shared.kafka, err = lab.StartKafka(ctx, lab.KafkaOptions{
		Dir: dir, Version: os.Getenv("E2E_KAFKA"), Advertise: shared.cable.Addr,
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.kafka.Stop()) }()
	shared.cable.Connect(shared.kafka.Proxied)
	if dir, err = folder("minio"); err != nil {
		return 1, err
	}
	if shared.minio, err = lab.StartMinIO(ctx, dir); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.minio.Stop()) }()
	if shared.bucket, err = lab.CreateBucket(ctx, shared.minio.Endpoint, "e2e"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func folder(name string) (string, error) {
	dir := filepath.Join(shared.dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// build compiles the connector once. E2E_RACE=1 adds the race detector.
func build(ctx context.Context) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	shared.binary = filepath.Join(shared.dir, "connector")
	args := []string{"build", "-o", shared.binary}
	if os.Getenv("E2E_RACE") != "" {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/connector")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the connector: %w: %s", err, out)
	}
	return nil
}
