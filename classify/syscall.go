package classify

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// passing are errors of the operating system that end by themselves, or once there is room again.
var passing = [...]error{
	io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT, syscall.ENETRESET,
	syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EADDRNOTAVAIL,
	syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS,
	syscall.EAGAIN, syscall.EINTR, syscall.EBUSY, syscall.EIO, syscall.ESTALE,
}

// denied are errors of the operating system that a person has to fix.
var denied = [...]error{syscall.EACCES, syscall.EPERM, syscall.EROFS}

// ofSyscall returns the class of a system error. known is false if err is in neither passing nor denied.
func ofSyscall(err error) (class Class, known bool) {
	for _, e := range denied {
		if errors.Is(err, e) {
			return Fatal, true
		}
	}
	for _, e := range passing {
		if errors.Is(err, e) {
			return Transient, true
		}
	}
	return Transient, false
}
