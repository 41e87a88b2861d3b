package lab

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// become makes a process that is to start one of the user.
func (a *account) become(attr *syscall.SysProcAttr) {
	attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// maxrssUnit is what the system counts resident memory in.
const maxrssUnit = 1 << 10
