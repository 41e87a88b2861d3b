//go:build !linux

package lab

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// become does nothing: only on Linux tests run as root.
func (*account) become(*syscall.SysProcAttr) {}

// maxrssUnit is what the system counts resident memory in.
const maxrssUnit = 1
