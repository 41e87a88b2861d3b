package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// become makes a command run as the user.
func (a *account) become(attr *syscall.SysProcAttr) {
	attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// Resident returns the resident memory of a running process and its peak since the start, in bytes. While the process
// is ending, the error is [os.ErrProcessDone], because a zombie has no memory to read.
func (p *Process) Resident() (current, peak int64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0, 0, fmt.Errorf("memory of %s: %w", p.Name, err)
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "VmRSS" && name != "VmHWM" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("memory of %s: %w", p.Name, err)
		}
		if name == "VmRSS" {
			current = kib << 10
		} else {
			peak = kib << 10
		}
	}
	if peak == 0 {
		return 0, 0, fmt.Errorf("memory of %s: %w", p.Name, os.ErrProcessDone)
	}
	return current, peak, nil
}
