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
	if current, err = p.memory("VmRSS"); err != nil {
		return 0, 0, err
	}
	peak, err = p.memory("VmHWM")
	return current, peak, err
}

// ResidentOfFiles returns the part of a running process's resident memory that holds pages of files, such as its
// binary, in bytes. The kernel can take these pages back at any time, and their number depends on the machine. Errors
// are those of Resident.
func (p *Process) ResidentOfFiles() (int64, error) { return p.memory("RssFile") }

// memory returns a figure of a running process's /proc/PID/status, in bytes.
func (p *Process) memory(name string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.Name, err)
	}
	for line := range strings.Lines(string(data)) {
		value, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("memory of %s: %w", p.Name, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("memory of %s: %w", p.Name, os.ErrProcessDone)
}
