package deltalog

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// spoolMemory is what a spool keeps in memory before it takes a file.
const spoolMemory = 8 << 20

// spool holds bytes until they are all written and can be read from the start: in memory while they are few, in a
// temporary file when they are many.
type spool struct {
	dir  string
	buf  bytes.Buffer
	file *os.File
}

func newSpool(dir string) *spool { return &spool{dir: dir} }

func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil && s.buf.Len()+len(p) > spoolMemory {
		if err := s.toFile(); err != nil {
			return 0, s.failed(err)
		}
	}
	if s.file == nil {
		return s.buf.Write(p)
	}
	n, err := s.file.Write(p)
	if err != nil {
		err = s.failed(err)
	}
	return n, err
}

// toFile moves what is in memory to a temporary file.
func (s *spool) toFile() (err error) {
	if s.file, err = os.CreateTemp(s.dir, "sluice-checkpoint-*"); err != nil {
		s.file = nil
		return err
	}
	_, err = s.buf.WriteTo(s.file)
	s.buf = bytes.Buffer{}
	return err
}

// failed says what to do about a directory that takes no file.
func (s *spool) failed(err error) error {
	dir := s.dir
	if dir == "" {
		dir = os.TempDir()
	}
	return fmt.Errorf("a checkpoint of more than %d MiB needs a temporary file, and %s takes none: set TMPDIR to a directory that can be written to: %w",
		spoolMemory>>20, dir, err)
}

// reader returns what was written. It is valid until discard.
func (s *spool) reader() (io.ReadSeeker, error) {
	if s.file == nil {
		return bytes.NewReader(s.buf.Bytes()), nil
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	return s.file, nil
}

func (s *spool) discard() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}
