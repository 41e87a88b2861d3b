package tokens_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/laketest"
	"sluice/secure/reload"
	"sluice/secure/tokens"
)

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func TestRole_Includes(t *testing.T) {
	all := []tokens.Role{tokens.Viewer, tokens.Operator, tokens.Replayer, tokens.Admin}
	for i, r := range all {
		for j, other := range all {
			if r.Includes(other) != (i >= j) {
				t.Errorf("%v includes %v: %v", r, other, i < j)
			}
		}
		if r.Includes(0) || tokens.Role(0).Includes(r) {
			t.Errorf("the zero role and %v", r)
		}
		if again, err := tokens.ParseRole(r.String()); err != nil || again != r {
			t.Errorf("%v: %v, %v", r, again, err)
		}
	}
	if tokens.Role(0).Includes(0) {
		t.Error("the zero role includes itself: a route without a role would be open")
	}
}

func TestParse(t *testing.T) {
	text := "# people\n\nada admin " + hash("one") + "\nada admin " + strings.ToUpper(hash("two")) + "   # until the old one is gone\n" +
		"ci operator " + hash("three") + " expires=2026-05-01T10:00:00+02:00\n"
	s, err := tokens.Parse([]byte(text))
	if err != nil || s.Len() != 3 {
		t.Fatalf("%v, %v", s, err)
	}
	for secret, want := range map[string]struct {
		name string
		role tokens.Role
	}{"one": {"ada", tokens.Admin}, "two": {"ada", tokens.Admin}, "three": {"ci", tokens.Operator}, "": {}, "four": {}, hash("one"): {}} {
		found, ok := s.Find(secret)
		if ok != (want.name != "") || found.Name != want.name || found.Role != want.role {
			t.Errorf("%q: %+v, %v", secret, found, ok)
		}
	}
	ci, _ := s.Find("three")
	end := time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)
	if ci.Expired(end.Add(-1)) || !ci.Expired(end) {
		t.Errorf("%+v", ci)
	}
	if none, err := tokens.Parse([]byte("# all revoked\n")); err != nil || none.Len() != 0 {
		t.Errorf("%v, %v", none, err)
	}
}

// TestParse_Bad: the error names the number of the line and quotes nothing of it, because the line may contain a token
// in plain text.
func TestParse_Bad(t *testing.T) {
	good := "ada admin " + hash("one") + "\n"
	for name, c := range map[string]struct{ text, want string }{
		"Empty":         {" \n", "is empty"},
		"TokenItself":   {good + "bob viewer hunter2canary", "line 2: the third word"},
		"ShortHash":     {"bob viewer " + hash("x")[:62], "line 1: the third word"},
		"NoRole":        {"hunter2canary " + hash("x"), "line 1: is not NAME"},
		"UnknownRole":   {"bob hunter2canary " + hash("x"), "line 1: the role is unknown"},
		"Name":          {"b/hunter2canary viewer " + hash("x"), "line 1: the name may have"},
		"LongName":      {strings.Repeat("b", 65) + " viewer " + hash("x"), "line 1: the name may have"},
		"Twice":         {good + "bob viewer " + hash("one"), "line 2: the token is given twice"},
		"TwoRoles":      {good + "ada viewer " + hash("two"), "line 2: the name has another role"},
		"Expiry":        {"bob viewer " + hash("x") + " expires=hunter2canary", "line 1: the fourth word"},
		"ExpiryNoKey":   {"bob viewer " + hash("x") + " 2026-05-01T10:00:00Z", "line 1: the fourth word"},
		"FiveWords":     {"bob viewer " + hash("x") + " expires=2026-05-01T10:00:00Z hunter2canary", "line 1: is not NAME"},
		"EmptyTokenSum": {"bob viewer " + hash(""), "line 1: the hash is that of an empty token"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := tokens.Parse([]byte(c.text))
			if err == nil || s != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2canary") {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestFile_Watch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens")
		logger, log := laketest.NewLog()
		if _, err := tokens.Open(t.Context(), path, logger); err == nil {
			t.Error("a missing file was accepted at the start")
		}
		write(t, path, "ada admin "+hash("one")+"\n", 0o600)
		f, err := tokens.Open(t.Context(), path, logger)
		if err != nil || log.String() != "" {
			t.Fatal(err, log.String())
		}
		go f.Watch(t.Context())
		has := func(secret string, want bool, line string, count int) {
			t.Helper()
			time.Sleep(reload.Every + 1)
			synctest.Wait()
			if _, ok := f.Value().Find(secret); ok != want {
				t.Errorf("%q found: %v", secret, ok)
			}
			if got := strings.Count(log.String(), line); got != count {
				t.Errorf("%d lines %q:\n%s", got, line, log.String())
			}
		}
		write(t, path, "ada admin "+hash("one")+"\nada admin "+hash("two")+"\n", 0o600)
		has("two", true, "tokens file changed", 1)
		write(t, path, "ada admin "+hash("two")+"\n", 0o600)
		has("one", false, "tokens file changed", 2)
		write(t, path, "ada admin secretcanary\n", 0o600)
		has("two", true, "keeping its last content", 1)
		has("two", true, "keeping its last content", 1) // the same error is logged only once
		if strings.Contains(log.String(), "secretcanary") {
			t.Error("the log quotes the file")
		}
		write(t, path, "", 0o600)
		has("two", true, "is empty", 1)
		write(t, path, "ada admin "+hash("two")+"\n", 0o640)
		has("two", true, "set its mode to 0600", 1)
		has("two", true, "set its mode to 0600", 1)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		has("two", true, "no such file", 1)
		write(t, path, "# none\n", 0o600)
		has("two", false, `"tokens":0`, 1)
	})
}
