package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// Process is a child process. Its output goes to the file Log.
type Process struct {
	Name string
	Log  string // path of the file with stdout and stderr

	cmd  *exec.Cmd
	done chan struct{}
	err  error        // the result of the process; set before done is closed
	peak atomic.Int64 // the largest sample of resident memory, in bytes
}

// StartProcess starts a program with env added to the environment and appends its output to logPath. On Linux the child
// is killed when its parent dies.
func StartProcess(name, logPath string, env []string, argv ...string) (*Process, error) {
	return startAs(nil, name, logPath, "", env, argv...)
}

// startAs is [StartProcess] in a folder and as another user. A nil user is the current one, and "" the current folder.
func startAs(user *account, name, logPath, dir string, env []string, argv ...string) (*Process, error) {
	if err := os.MkdirAll(filepath.Dir(logPath), 0o755); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir, cmd.SysProcAttr = dir, dieWithParent()
	if user != nil {
		user.become(cmd.SysProcAttr)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, Log: logPath, cmd: cmd, done: make(chan struct{})}
	p.sample()
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	go p.sampleUntilEnd()
	return p, nil
}

// account is a user of the system.
type account struct{ uid, gid int }

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ExitCode returns the exit code of an ended process, -1 if a signal ended it. It waits for the end.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Usage returns the CPU time of an ended process, its own and that of the children it waited for.
func (p *Process) Usage() (user, system time.Duration) {
	<-p.done
	return p.cmd.ProcessState.UserTime(), p.cmd.ProcessState.SystemTime()
}

// sampleEvery is how often the resident memory of a process is read while it runs.
const sampleEvery = 50 * time.Millisecond

// PeakRSS returns the most memory that an ended process had resident, in bytes, without its children. It is the VmHWM
// of the last sample, so memory that a process takes in the last [sampleEvery] before it ends by itself may be missing.
// The ru_maxrss that wait4 reports is of no use: on Linux it starts at the resident size of the parent.
func (p *Process) PeakRSS() int64 {
	<-p.done
	return p.peak.Load()
}

// sample raises the peak to the VmHWM of the running process.
func (p *Process) sample() {
	_, high, err := p.Resident()
	if err != nil {
		return // the process has ended, and earlier samples count
	}
	for {
		before := p.peak.Load()
		if high <= before || p.peak.CompareAndSwap(before, high) {
			return
		}
	}
}

// sampleUntilEnd takes samples of the memory until the process has ended.
func (p *Process) sampleUntilEnd() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
			p.sample()
		}
	}
}

// Signal sends a signal. It returns no error if the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	p.sample()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s (pid %d): %w", p.Name, p.Pid(), err)
	}
	return nil
}

// Kill ends the process at once (SIGKILL) and waits for its end.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop sends SIGTERM, waits for the end, and kills the process after grace. It returns an error if it had to kill.
func (p *Process) Stop(grace time.Duration) error {
	if !p.Running() {
		return nil
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return fmt.Errorf("stop %s: it did not end within %s", p.Name, grace)
}

// Tail returns the end of the process's output, for failure messages.
func (p *Process) Tail() string {
	const most = 4000
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}
