//go:build lab

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/test/lab"
)

// TestInit expects the file that connector init writes to be valid, and a run with it to move all records from Kafka to
// MinIO. Where MinIO denies access, or has no such bucket, init says what to do and writes nothing.
func TestInit(t *testing.T) {
	t.Setenv("HEALTH_CHECK_PORT", "0")
	t.Setenv("BAD_KEY", "geheim")
	s := newScene(t, 3)
	s.orders.Odd = 0
	s.produce(2000)
	file := filepath.Join(s.dir, "init.yaml")
	init := func(storage string, more ...string) (int, string) {
		return s.command(append([]string{
			"init", "--broker", s.addrs[0], "--storage", storage, "--topic", s.name, "--output", file, "--records", "2000",
			"--set", "storage.s3.endpoint=" + s.minio.Endpoint, "--set", "storage.s3.region=" + lab.Region,
		}, more...)...)
	}
	for _, c := range []struct {
		storage string
		more    []string
		want    string
	}{
		{"s3://no-such-bucket/x", nil, "no-such-bucket"},
		{"s3://" + s.bucket.Name + "/x", []string{"--set", "storage.s3.access_key=${BAD_KEY}", "--set", "storage.s3.secret_key=${BAD_KEY}"}, "key"},
	} {
		code, text := init(c.storage, c.more...)
		t.Logf("%s", text)
		if code != 3 || !strings.Contains(text, c.want) {
			t.Errorf("%s: exit code %d\n%s", c.storage, code, text)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatal("it wrote a file")
		}
	}
	code, text := init("s3://" + s.bucket.Name + "/" + s.name)
	t.Logf("%s", text)
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	content, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(content), lab.SecretKey) || !strings.Contains(string(content), "path_style: true\n") {
		t.Errorf("%v\n%s", err, content)
	}
	for _, command := range [][]string{{"validate"}, {"check"}, {"run", "--until-current"}, {"verify", "--kafka"}} {
		if code, text := s.command(append(command, "--config", file)...); code != 0 {
			t.Fatalf("%v: exit code %d: %s", command, code, tail([]byte(text)))
		}
	}
	_, text = s.command("table", "inspect", "--topic", s.name, "--output", "json", "--config", file)
	var table struct {
		Rows int64 `json:"rows"`
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil || table.Rows != 2000 {
		t.Errorf("%v: %s", err, text)
	}
	t.Logf("%s", content)
}
