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
		file, err := os.CreateTemp(s.dir, "sluice-checkpoint-*")
		if err != nil {
			return 0, fmt.Errorf("spool: %w", err)
		}
		s.file = file
		if _, err := s.buf.WriteTo(file); err != nil {
			return 0, fmt.Errorf("spool: %w", err)
		}
		s.buf = bytes.Buffer{}
	}
	if s.file != nil {
		return s.file.Write(p)
	}
	return s.buf.Write(p)
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
