//go:build lab

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/test/lab"
)

// shell is a shell in which the test executes the commands of a page, one after the other. Its variables, jobs and current
// folder last from command to command.
type shell struct {
	*scene
	in  io.WriteCloser
	out *bufio.Reader
}

// newShell starts a shell in a folder. The folder bin comes first in its PATH.
func (s *scene) newShell(dir, bin string) *shell {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, "bash", "-o", "pipefail")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(append(os.Environ(), environment()...), "PATH="+bin+":"+os.Getenv("PATH"), "USER=ada", "TZ=UTC",
		"MINIO_ROOT_USER="+lab.AccessKey, "MINIO_ROOT_PASSWORD="+lab.SecretKey)
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_, _ = io.WriteString(in, "kill -9 $(jobs -p)\n") // what the page starts and does not end
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &shell{s, in, bufio.NewReader(out)}
}

// endOfOutput is what the shell prints after a command, before the exit code.
const endOfOutput = "END OF OUTPUT"

// execute executes a command and returns its stdout and its exit code.
func (s *shell) execute(command string) (printed, code string) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.in, "%s\necho; echo '%s' $?\n", command, endOfOutput); err != nil {
		s.t.Fatal(err)
	}
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("$ %s: %v", command, err)
		}
		if rest, ended := strings.CutPrefix(line, endOfOutput); ended {
			return strings.TrimSuffix(printed, "\n"), strings.TrimSpace(rest)
		}
		printed += line
	}
}

var (
	fence     = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	intoFile  = regexp.MustCompile("into `([^`]+)`")
	variable  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	runOfGaps = regexp.MustCompile(` +`)
	atLineEnd = regexp.MustCompile(` +\n`)
)

// asOnPage reports whether a command printed what a page shows. Times, the width of columns and spaces at the end of a
// line may differ. "…" on the page matches any text.
func asOnPage(page, printed string) bool {
	normal := func(s string) string {
		return strings.TrimSpace(runOfGaps.ReplaceAllString(atLineEnd.ReplaceAllString(variable.ReplaceAllString(s, "TIME"), "\n"), " "))
	}
	pattern, more := strings.CutSuffix(regexp.QuoteMeta(normal(page)), "\n…") // further lines may follow
	pattern = strings.ReplaceAll(pattern, "…", "(?s:.*)")
	if more {
		pattern += `(?s:(\n.*)?)`
	}
	return regexp.MustCompile(`\A` + pattern + `\z`).MatchString(normal(printed))
}

// TestTutorialReplay follows docs/tutorial-replay.md: it writes the files and executes the commands of the page. Each
// command must print what the page shows. The commands use the servers of the test lab instead of those that Docker
// Compose would start.
func TestTutorialReplay(t *testing.T) {
	t.Parallel()
	s := newSceneAt(t, shared.kafka.Addr)
	if err := shared.kafka.CreateTopic(s.ctx, "orders", 8, nil); err != nil {
		t.Fatal(err)
	}
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, clone := filepath.Join(s.dir, "bin"), filepath.Join(s.dir, "clone")
	for _, dir := range []string{bin, clone} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	python, err := lab.Install(s.ctx, "readers")
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := shared.kafka.WriteTool(filepath.Join(bin, "kafka-console-producer.sh"), "org.apache.kafka.tools.ConsoleProducer"); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(bin, "duckdb"), fmt.Sprintf("#!/bin/sh\nexec %q %q \"$@\"\n", python, filepath.Join(root, "test", "oracle", "duckdb_cli.py")))
	if err := os.Symlink(shared.binary, filepath.Join(bin, "connector")); err != nil {
		t.Fatal(err)
	}
	health, err := lab.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	ops, err := lab.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.dir, "replay")
	here := strings.NewReplacer("127.0.0.1:9092", s.addrs[0], "127.0.0.1:9000", strings.TrimPrefix(s.minio.Endpoint, "http://"), "s3://lake/tables", "s3://"+s.bucket.Name+"/"+s.name,
		"127.0.0.1:8080", health, "localhost:8080", health, "/tmp/sluice-replay", dir, "docker exec -i sluice-kafka-1 /opt/kafka/bin/", "",
		"KEY_ID 'minioadmin'", "KEY_ID '"+lab.AccessKey+"'", "SECRET 'minioadmin'", "SECRET '"+lab.SecretKey+"'")
	text := func(file string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		return here.Replace(string(b))
	}
	write(filepath.Join(clone, "config.minio.yaml"), text("config.minio.yaml")+"ops: {listen: \""+ops+"\"}\n")
	page, sh := text("docs/tutorial-replay.md"), s.newShell(clone, bin)
	executed := ""
	for _, m := range fence.FindAllStringSubmatchIndex(page, -1) {
		switch lang, block := page[m[2]:m[3]], page[m[4]:m[5]]; lang {
		case "text":
			names := intoFile.FindAllStringSubmatch(page[:m[0]], -1)
			write(filepath.Join(dir, names[len(names)-1][1]), block)
		case "console":
			for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
				command, want, _ := strings.Cut(part, "\n")
				executed += command + "\n"
				sh.shows(command, want)
			}
		case "sh": // TestCommandsInDocs
		default:
			t.Errorf("no test knows a block of %q", lang)
		}
	}
	for _, command := range []string{"run", "deadletters list", "deadletters show", "deadletters replay", "verify --kafka", "audit verify"} {
		if !strings.Contains(executed, "connector "+command) {
			t.Errorf("the page does not execute %s", command)
		}
	}
}

// shows executes a command and expects what the page shows. A reader may repeat a command that asks a running member or
// the table, so the test does, too.
func (s *shell) shows(command, page string) {
	s.t.Helper()
	printed, code := s.execute(command)
	if name, _, _ := strings.Cut(command, " "); name == "curl" || name == "grep" || name == "duckdb" {
		s.await("$ "+command+" prints what the page shows", func() (bool, error) {
			if code == "0" && asOnPage(page, printed) {
				return true, nil
			}
			printed, code = s.execute(command)
			return false, nil
		})
	}
	s.t.Logf("$ %s\n%s", command, printed)
	if code != "0" || !asOnPage(page, printed) {
		s.t.Errorf("$ %s\nexit code %s, prints:\n%s\nthe page shows:\n%s", command, code, printed, page)
	}
}

// TestKafkaCommandsInDocs executes the commands of Kafka's own tools that docs/alerts.md names. Each must succeed and
// say that it has changed the topic.
func TestKafkaCommandsInDocs(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.kafka.WriteTool(filepath.Join(s.dir, "kafka-configs.sh"), "kafka.admin.ConfigCommand"); err != nil {
		t.Fatal(err)
	}
	sh := s.newShell(s.dir, s.dir)
	commands := regexp.MustCompile("`(kafka-[^`]+)`").FindAllStringSubmatch(string(page), -1)
	for _, m := range commands {
		command := strings.NewReplacer("127.0.0.1:9092", s.addrs[0], "--topic orders", "--topic "+s.name).Replace(m[1])
		printed, code := sh.execute(command)
		if code != "0" || !strings.Contains(printed, "Completed updating config for topic "+s.name) {
			t.Errorf("$ %s\nexit code %s: %s", command, code, printed)
		}
	}
	if len(commands) == 0 {
		t.Error("the page names no command")
	}
}
