//go:build !linux

package lab

import (
	"errors"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// become does nothing: only on Linux do tests run as root.
func (*account) become(*syscall.SysProcAttr) {}

// Resident returns an error: only Linux has /proc.
func (*Process) Resident() (current, peak int64, err error) {
	return 0, 0, errors.New("resident memory is read on Linux only")
}
