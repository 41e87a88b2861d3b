//go:build !linux

package lab

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

// maxrssUnit is what the system counts resident memory in.
const maxrssUnit = 1
