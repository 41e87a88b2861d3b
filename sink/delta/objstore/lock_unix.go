//go:build unix

package objstore

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// lockFile takes an exclusive lock, which the kernel drops when the process ends for any reason. It does not wait: it
// returns errLocked if another process holds the lock.
func lockFile(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode) //nolint:gosec // below the operator's directory
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			err = errLocked
		}
		return nil, errors.Join(err, f.Close())
	}
}
