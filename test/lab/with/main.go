// Command with runs a command beside a server of the test lab.
//
//	go run ./test/lab/with minio COMMAND ARGUMENT...
//
// SLUICE_TEST_S3 names the server in the command's environment.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"sluice/test/lab"
)

func main() {
	if len(os.Args) < 3 || os.Args[1] != "minio" {
		fmt.Fprintln(os.Stderr, "usage: with minio COMMAND ARGUMENT...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "with:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	dir, err := os.MkdirTemp("", "sluice-with-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	minio, err := lab.StartMinIO(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, minio.Stop()) }()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "SLUICE_TEST_S3="+minio.Endpoint)
	return cmd.Run()
}
