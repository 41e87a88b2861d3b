package admin

import (
	"os"

	"sluice/internal/config"
)

// tempDir creates and removes a file in the directory for temporary files.
func (k *checks) tempDir() { k.findings = append(k.findings, checkTempDir(k.config)...) }

// checkTempDir returns what is wrong with the directory for temporary files, or that a configured one is usable. It is
// a warning at most: only large checkpoints need the directory, and commits continue without them.
func checkTempDir(c *config.Config) []Finding {
	const area, subject = "configuration", "temp_dir"
	f, err := os.CreateTemp(c.TempDir, "sluice-check-*")
	if err == nil {
		_ = f.Close()
		err = os.Remove(f.Name())
	}
	switch {
	case err != nil:
		return []Finding{{StatusWarning, area, subject, err.Error(), "checkpoints of more than 8 MiB cannot be written: set temp_dir to a directory that this process can write to"}}
	case c.TempDir != "":
		return []Finding{{Status: StatusOK, Area: area, Subject: subject, Text: c.TempDir + " can be written to"}}
	}
	return nil
}
