package lab

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// maxrssUnit is what the system counts resident memory in.
const maxrssUnit = 1 << 10
