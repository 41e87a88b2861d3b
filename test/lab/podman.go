package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Podman builds images and runs containers as root, without a daemon and without a registry. Images and containers lie
// in one folder.
type Podman struct {
	dir   string
	guard *exec.Cmd
	alive io.Closer
}

// containersConf makes podman work on machines without systemd, and with control groups of version 1.
const containersConf = `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
`

// StartPodman returns a Podman on the empty folder dir. The caller must call Close.
func StartPodman(ctx context.Context, dir string) (*Podman, error) {
	if _, err := Install(ctx, "podman"); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("start podman: a memory limit needs root: run the tests as root")
	}
	p := &Podman{dir: dir}
	if err := os.WriteFile(p.conf(), []byte(containersConf), 0o644); err != nil {
		return nil, fmt.Errorf("start podman: %w", err)
	}
	// Containers outlive the process that started them. So a shell waits for the end of this process, however it comes,
	// and removes them.
	p.guard = exec.Command("sh", "-c", `cat >/dev/null; exec "$@"`, "sh", "podman")
	p.guard.Args = append(p.guard.Args, append(p.storage(), "rm", "--all", "--force", "--time", "0")...)
	p.guard.Env = p.environment()
	p.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the tests does not end it
	pipe, err := p.guard.StdinPipe()
	if err == nil {
		err = p.guard.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start podman: %w", err)
	}
	p.alive = pipe
	return p, nil
}

// Close ends and removes all containers.
func (p *Podman) Close() error {
	if err := errors.Join(p.alive.Close(), p.guard.Wait()); err != nil {
		return fmt.Errorf("remove containers: %w", err)
	}
	return nil
}

func (p *Podman) conf() string { return filepath.Join(p.dir, "containers.conf") }

// storage returns the options that name the folder. The driver vfs copies files, which works on every file system.
func (p *Podman) storage() []string {
	return []string{"--root", filepath.Join(p.dir, "storage"), "--runroot", filepath.Join(p.dir, "run"), "--storage-driver", "vfs"}
}

func (p *Podman) environment() []string { return append(os.Environ(), "CONTAINERS_CONF="+p.conf()) }

// Run runs a podman command and returns its standard output without the last line end.
func (p *Podman) Run(ctx context.Context, args ...string) (string, error) {
	return p.run(ctx, "podman", args)
}

// Build builds an image from a folder with a Dockerfile, with further options of `buildah bud`.
func (p *Podman) Build(ctx context.Context, tag, folder string, options ...string) error {
	args := append([]string{"bud", "--isolation", "chroot", "--format", "docker", "--tag", tag}, options...)
	_, err := p.run(ctx, "buildah", append(args, folder))
	return err
}

// Logs returns the end of what a container wrote to its standard output and error.
func (p *Podman) Logs(ctx context.Context, container string) (string, error) {
	cmd := exec.CommandContext(ctx, "podman", append(p.storage(), "logs", "--tail", "50", container)...)
	cmd.Env = p.environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("podman logs %s: %w: %s", container, err, out)
	}
	return string(out), nil
}

func (p *Podman) run(ctx context.Context, program string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, program, append(p.storage(), args...)...)
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &text, p.environment()
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s%s", program, strings.Join(args, " "), err, text.String(), out.String())
	}
	return strings.TrimRight(out.String(), "\n"), nil
}
