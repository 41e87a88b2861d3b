package objstore

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// lockFile opens the file without sharing it, so that a second open fails until the first one is closed. Windows
// closes it when the process ends. It returns errLocked if another process holds the lock.
func lockFile(name string) (io.Closer, error) {
	const sharingViolation = syscall.Errno(32)
	p, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(p, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS,
		syscall.FILE_ATTRIBUTE_NORMAL, 0)
	switch {
	case err == nil:
		return os.NewFile(uintptr(h), name), nil
	case errors.Is(err, sharingViolation):
		return nil, errLocked
	}
	return nil, err
}
