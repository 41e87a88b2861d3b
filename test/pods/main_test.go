//go:build lab

// Package pods builds the image and runs pods of the Helm chart on real Kafka and MinIO, by podman and without a
// cluster. A limit of memory, a read-only root and missing capabilities are real; the tests do the work of the kubelet
// and of the Deployment. The build tag long repeats the incidents with more members.
package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sluice/test/lab"
)

// shared has the servers and the image that all tests use.
var shared struct {
	podman *lab.Podman
	kafka  *lab.Kafka
	minio  *lab.MinIO
	bucket *lab.Bucket
}

func TestMain(m *testing.M) {
	if os.Getenv(crowdEnv) != "" {
		crowd()
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pods:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sluice-pods-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, name := range []string{"podman", "kafka", "minio"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return 1, err
		}
	}
	if shared.podman, err = lab.StartPodman(ctx, filepath.Join(dir, "podman")); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.podman.Close()) }()
	if err := buildImage(ctx, filepath.Join(dir, "base")); err != nil {
		return 1, err
	}
	if shared.kafka, err = lab.StartKafka(ctx, lab.KafkaOptions{Dir: filepath.Join(dir, "kafka")}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.kafka.Stop()) }()
	if shared.minio, err = lab.StartMinIO(ctx, filepath.Join(dir, "minio")); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.minio.Stop()) }()
	if shared.bucket, err = lab.CreateBucket(ctx, shared.minio.Endpoint, "pods"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
