package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Redis is a Redis server with its own folder.
type Redis struct {
	Addr string // 127.0.0.1:port
	URL  string // of database 0

	dir, bin string
	proc     *Process
}

// StartRedis starts a server on the folder dir. The caller must call Stop.
func StartRedis(ctx context.Context, dir string) (*Redis, error) {
	bin, err := Install(ctx, "redis")
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	r := &Redis{Addr: addr, URL: "redis://" + addr, dir: dir, bin: bin}
	return r, r.Start(ctx)
}

// Start starts the server again after Stop or Kill, at the same address and with its saved data. After Kill, up to one
// second of writes may be missing.
func (r *Redis) Start(ctx context.Context) error {
	_, port, err := net.SplitHostPort(r.Addr)
	if err != nil {
		return fmt.Errorf("start Redis: %w", err)
	}
	r.proc, err = startAs(nil, "Redis", filepath.Join(r.dir, "redis.log"), r.dir, nil, r.bin,
		"--bind", "127.0.0.1", "--port", port, "--dir", r.dir, "--appendonly", "yes", "--save", "", "--databases", "64")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = Until(ctx, func() (bool, error) {
		if !r.proc.Running() {
			return false, errors.New("it ended")
		}
		answer, err := r.ask(ctx, "PING")
		return err == nil && answer == "+PONG", nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start Redis: %w: %s", err, r.proc.Tail()), r.proc.Kill())
	}
	return nil
}

// Wipe deletes everything.
func (r *Redis) Wipe(ctx context.Context) error {
	if answer, err := r.ask(ctx, "FLUSHALL"); err != nil || answer != "+OK" {
		return fmt.Errorf("wipe Redis: %q, %w", answer, err)
	}
	return nil
}

// ask sends a command of one word and returns the first line of the reply.
func (r *Redis) ask(ctx context.Context, command string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.Addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// Pause keeps the server from answering anything until Resume.
func (r *Redis) Pause() error { return r.proc.Signal(syscall.SIGSTOP) }

// Resume lets a paused server continue.
func (r *Redis) Resume() error { return r.proc.Signal(syscall.SIGCONT) }

// Kill ends the server at once, as a crash does.
func (r *Redis) Kill() error { return r.proc.Kill() }

// Stop ends the server. Its folder stays.
func (r *Redis) Stop() error { return r.proc.Stop(10 * time.Second) }
