package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Postgres is a PostgreSQL server with its own database cluster.
type Postgres struct {
	Addr string // 127.0.0.1:port
	URL  string // of the database, with user and password

	bin, log, data string
	account        *account
	proc           *Process
}

// postgresPassword is the password of the superuser postgres.
const postgresPassword = "sluice"

// StartPostgres creates a database cluster and starts a server on it. The server's output goes to the folder dir. The
// data is in another temporary folder, because the server refuses to run as root, and a test's folder belongs to root.
// The caller must call Stop, which deletes the data.
func StartPostgres(ctx context.Context, dir string) (_ *Postgres, err error) {
	bin, err := Install(ctx, "postgres")
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: bin, log: filepath.Join(dir, "postgres.log")}
	if p.account, err = unprivileged(); err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	home, err := os.MkdirTemp("", "sluice-postgres-")
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	p.data = filepath.Join(home, "data")
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(home))
		}
	}()
	if err := p.initialize(ctx, home); err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	if p.Addr, err = FreeAddr(); err != nil {
		return nil, err
	}
	p.URL = "postgres://postgres:" + postgresPassword + "@" + p.Addr + "/postgres?sslmode=disable"
	return p, p.Start(ctx)
}

// unprivileged returns the user postgres, which Debian's package creates. If this process is not root, it returns nil,
// and the server runs as the user of this process.
func unprivileged() (*account, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("a server cannot be root: %w", err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return &account{uid, gid}, errors.Join(err1, err2)
}

// initialize creates the database cluster.
func (p *Postgres) initialize(ctx context.Context, home string) error {
	secret := filepath.Join(home, "password")
	if err := os.WriteFile(secret, []byte(postgresPassword), 0o600); err != nil {
		return err
	}
	if p.account != nil {
		if err := errors.Join(os.Chown(home, p.account.uid, p.account.gid), os.Chown(secret, p.account.uid, p.account.gid)); err != nil {
			return err
		}
	}
	init, err := startAs(p.account, "initdb", p.log, home, []string{"HOME=" + home}, filepath.Join(p.bin, "initdb"),
		"-D", p.data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8", "--locale", "C", "--no-sync")
	if err != nil {
		return err
	}
	select {
	case <-init.Done():
	case <-ctx.Done():
		return errors.Join(ctx.Err(), init.Kill())
	}
	if init.ExitCode() != 0 {
		return fmt.Errorf("initdb: %s", init.Tail())
	}
	return nil
}

// Start starts the server again after Stopped or Kill, at the same address and with the same data. The processes of a
// killed server keep its shared memory for a moment, and a new server refuses to start beside them, so Start retries.
func (p *Postgres) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := p.start(ctx)
		if err == nil || ctx.Err() != nil || p.proc == nil || p.proc.Running() {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// start starts the server and waits until it is ready or has ended.
func (p *Postgres) start(ctx context.Context) error {
	_, port, err := net.SplitHostPort(p.Addr)
	if err != nil {
		return fmt.Errorf("start Postgres: %w", err)
	}
	p.proc, err = startAs(p.account, "Postgres", p.log, p.data, nil, filepath.Join(p.bin, "postgres"), "-D", p.data,
		"-h", "127.0.0.1", "-p", port, "-k", p.data, "-c", "fsync=off", "-c", "shared_buffers=32MB", "-c", "max_connections=100")
	if err != nil {
		return err
	}
	err = Until(ctx, func() (bool, error) {
		if !p.proc.Running() {
			return false, errors.New("it ended")
		}
		// The first line of the file is the server's process id, the eighth its state.
		b, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		lines := strings.Split(string(b), "\n")
		return len(lines) > 7 && lines[0] == strconv.Itoa(p.proc.Pid()) && strings.TrimSpace(lines[7]) == "ready", nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start Postgres: %w: %s", err, p.proc.Tail()), p.proc.Kill())
	}
	return nil
}

// Kill ends the server at once, as a crash does; its data stays. Its child processes end a moment later.
func (p *Postgres) Kill() error { return p.proc.Kill() }

// Stopped ends the server and its sessions; its data stays.
func (p *Postgres) Stopped() error {
	if !p.proc.Running() {
		return nil
	}
	if err := p.proc.Signal(syscall.SIGINT); err != nil { // "fast": SIGTERM would wait for the clients
		return err
	}
	select {
	case <-p.proc.Done():
		return nil
	case <-time.After(20 * time.Second):
	}
	return errors.Join(errors.New("stop Postgres: it did not end"), p.proc.Kill())
}

// Stop ends the server and deletes its data.
func (p *Postgres) Stop() error {
	return errors.Join(p.Stopped(), os.RemoveAll(filepath.Dir(p.data)))
}
