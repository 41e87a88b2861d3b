package admin

import (
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/config"
)

func TestCheckTempDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := checkTempDir(&config.Config{TempDir: dir})
	if len(got) != 1 || got[0].Status != StatusOK || got[0].Text != dir+" can be written to" {
		t.Errorf("a directory: %+v", got)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("the check leaves %v, %v", left, err)
	}
	got = checkTempDir(&config.Config{TempDir: filepath.Join(dir, "missing")})
	if len(got) != 1 || got[0].Status != StatusWarning || !strings.Contains(got[0].Text, "no such file") || !strings.Contains(got[0].Hint, "set temp_dir") {
		t.Errorf("a missing directory: %+v", got)
	}
	if got = checkTempDir(&config.Config{}); len(got) > 0 {
		t.Errorf("the directory of the system can be written to: %+v", got)
	}
}
