package objstore

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"sluice/classify"
)

// localDenied are errors that the file system returns before it does anything, and that an operator must fix.
var localDenied = [...]error{
	syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.EFBIG,
	syscall.EXDEV, fs.ErrNotExist, fs.ErrPermission,
}

// localError maps an error of the file system to the contract of [Store]. A transient one (a full disk, too many open
// files) keeps its class.
func localError(err error) error {
	if err == nil || errors.Is(err, ErrRefused) || errors.Is(err, ErrUnsafe) {
		return err
	}
	for _, e := range localDenied {
		if errors.Is(err, e) {
			return classify.Mark(fmt.Errorf("%w: %w", ErrRefused, err), classify.Fatal)
		}
	}
	return err
}

// missingError returns [ErrNotFound] if err says that the file does not exist, else the result of [localError].
func missingError(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return errNotFound
	}
	return localError(err)
}
