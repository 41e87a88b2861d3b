package deltalog

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// spoolMemory is the size up to which a spool stays in memory.
const spoolMemory = 8 << 20

// spool collects bytes that are read from the start after all are written: in memory while they are few, else in a
// temporary file.
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

// toFile moves the content from memory to a temporary file.
func (s *spool) toFile() (err error) {
	if s.file, err = os.CreateTemp(s.dir, "sluice-checkpoint-*"); err != nil {
		s.file = nil
		return err
	}
	_, err = s.buf.WriteTo(s.file)
	s.buf = bytes.Buffer{}
	return err
}

// failed adds to err the directory of the temporary file, and the setting that selects another directory.
func (s *spool) failed(err error) error {
	dir := s.dir
	if dir == "" {
		dir = os.TempDir()
	}
	return fmt.Errorf("a checkpoint of more than %d MiB needs a temporary file, and %s takes none: set temp_dir to a directory that can be written to: %w",
		spoolMemory>>20, dir, err)
}

// reader returns the content. It is valid until discard.
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
