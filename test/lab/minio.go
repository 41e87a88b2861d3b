package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"time"
)

// AccessKey and SecretKey are the credentials of [MinIO].
const (
	AccessKey = "minioadmin"
	SecretKey = "minioadmin"
	Region    = "us-east-1"
)

// MinIO is an S3 server on one folder.
type MinIO struct {
	Endpoint string // http://127.0.0.1:port
	dir      string
	addr     string
	bin      string
	proc     *Process
}

// StartMinIO starts a server on the folder dir. The caller must call Stop.
func StartMinIO(ctx context.Context, dir string) (*MinIO, error) {
	bin, err := Install(ctx, "minio")
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	m := &MinIO{Endpoint: "http://" + addr, dir: dir, addr: addr, bin: bin}
	if err := m.Start(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// Start starts a stopped server again, at the same address and with the same data.
func (m *MinIO) Start(ctx context.Context) error {
	env := []string{
		"MINIO_ROOT_USER=" + AccessKey, "MINIO_ROOT_PASSWORD=" + SecretKey, "MINIO_UPDATE=off", "MINIO_BROWSER=off",
		"MINIO_CALLHOME_ENABLE=off", "MINIO_PROMETHEUS_AUTH_TYPE=public",
		"MINIO_CONFIG_ENV_FILE=", "HOME=" + m.dir,
	}
	proc, err := StartProcess("MinIO", filepath.Join(m.dir, "minio.log"), env,
		m.bin, "server", filepath.Join(m.dir, "data"), "--address", m.addr)
	if err != nil {
		return err
	}
	m.proc = proc
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = Until(ctx, func() (bool, error) {
		if !proc.Running() {
			return false, errors.New("it ended")
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Endpoint+"/minio/health/ready", nil)
		if err != nil {
			return false, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start MinIO: %w: %s", err, proc.Tail()), proc.Kill())
	}
	return nil
}

// Stop ends the server.
func (m *MinIO) Stop() error { return m.proc.Stop(10 * time.Second) }

// Kill ends the server at once, as a crash does.
func (m *MinIO) Kill() error { return m.proc.Kill() }

// Pause keeps the server from answering anything until Resume. Its port stays open.
func (m *MinIO) Pause() error { return m.proc.Signal(syscall.SIGSTOP) }

// Resume lets a paused server continue.
func (m *MinIO) Resume() error { return m.proc.Signal(syscall.SIGCONT) }

// Pid returns the server's process id.
func (m *MinIO) Pid() int { return m.proc.Pid() }
