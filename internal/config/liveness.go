package config

import (
	"fmt"
	"os"
	"path/filepath"
)

// livenessFile refuses a text that names a folder, and accepts any other.
func livenessFile(s string) error {
	if s != "" && (os.IsPathSeparator(s[len(s)-1]) || filepath.Base(s) == "." || filepath.Base(s) == "..") {
		return fmt.Errorf("%q is a folder: name a file in it", s)
	}
	return nil
}

// checkLivenessFile resolves the path of the liveness file, which must not be the configuration itself.
func (l *loader) checkLivenessFile() {
	path := &l.config.Health.LivenessFile
	if *path == "" {
		return
	}
	*path = l.beside(*path)
	file, err := os.Stat(*path)
	if err != nil {
		return
	}
	if own, err := os.Stat(l.file); err == nil && os.SameFile(file, own) {
		l.report(l.at("health.liveness_file"), "this is the configuration itself: name another file")
	}
}
