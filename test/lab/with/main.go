// Command with runs a command beside servers of the test lab.
//
//	go run ./test/lab/with kafka,minio,postgres,redis COMMAND ARGUMENT...
//
// kafka-3.9.1 in place of kafka is a broker of that version. In the command's environment SLUICE_TEST_KAFKA is the
// broker's address and SLUICE_TEST_KAFKA_VERSION its version, if one was named, SLUICE_TEST_S3 the URL of the S3
// server, SLUICE_TEST_POSTGRES that of a database, SLUICE_TEST_REDIS that of a Redis server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"sluice/test/lab"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: with kafka,minio,postgres,redis COMMAND ARGUMENT...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, strings.Split(os.Args[1], ","), os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "with:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, servers, args []string) (err error) {
	dir, err := os.MkdirTemp("", "sluice-with-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	env := os.Environ()
	for _, name := range servers {
		own := filepath.Join(dir, name)
		if err := os.Mkdir(own, 0o755); err != nil {
			return err
		}
		switch name, version, _ := strings.Cut(name, "-"); name {
		case "kafka":
			kafka, failed := lab.StartKafka(ctx, lab.KafkaOptions{Dir: own, Version: version})
			if failed != nil {
				return failed
			}
			defer func() { err = errors.Join(err, kafka.Stop()) }()
			env = append(env, "SLUICE_TEST_KAFKA="+kafka.Addr, "SLUICE_TEST_KAFKA_VERSION="+version)
		case "minio":
			minio, failed := lab.StartMinIO(ctx, own)
			if failed != nil {
				return failed
			}
			defer func() { err = errors.Join(err, minio.Stop()) }()
			env = append(env, "SLUICE_TEST_S3="+minio.Endpoint)
		case "postgres":
			postgres, failed := lab.StartPostgres(ctx, own)
			if failed != nil {
				return failed
			}
			defer func() { err = errors.Join(err, postgres.Stop()) }()
			env = append(env, "SLUICE_TEST_POSTGRES="+postgres.URL)
		case "redis":
			redis, failed := lab.StartRedis(ctx, own)
			if failed != nil {
				return failed
			}
			defer func() { err = errors.Join(err, redis.Stop()) }()
			env = append(env, "SLUICE_TEST_REDIS="+redis.URL)
		default:
			return fmt.Errorf("the lab has no server %q", name)
		}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = env
	return cmd.Run()
}
