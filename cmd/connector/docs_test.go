//go:build !nodemo

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestCommandsInDocs executes the commands in the shell blocks of README and docs. If another suite executes a command,
// this test only checks that. A command that no suite executes fails the test.
func TestCommandsInDocs(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	files := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "test/README.md"}
	more, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	member := sync.OnceValue(func() string { return listening(t) })
	commands := 0
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range shellBlocks(string(text)) {
			commands++
			t.Run(file+": "+command, func(t *testing.T) { execute(t, command, member) })
		}
	}
	if commands < 5 {
		t.Errorf("only %d commands found: are the blocks still marked as sh?", commands)
	}
}

func shellBlocks(text string) []string { return commandsIn(text, "```sh") }

// commandsIn returns the lines of the blocks that begin with the line fence, without comments. A backslash at the end
// continues a line.
func commandsIn(text, fence string) (commands []string) {
	in := false
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			in = line == fence
		case in && line != "" && !strings.HasPrefix(line, "#"):
			commands = append(commands, line)
		}
	}
	return commands
}

// execute executes a command of the docs. If another suite executes it, execute only checks that; if none does, it
// fails the test. member starts a member, once, and returns the address of its health server.
func execute(t *testing.T, command string, member func() string) {
	t.Helper()
	words := strings.Fields(command)
	switch {
	case strings.HasPrefix(command, "go run ./cmd/connector "):
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		args := words[3:]
		switch args[0] {
		case "demo":
			args = append(args, "--records", "500", "--dir", t.TempDir())
		case "init": // at a broker of this test
			args = initHere(t, args)
		case "run": // the configured servers do not exist, so the run must only start and end: its context is canceled before
			cancel()
		}
		var out, errs bytes.Buffer
		if code := run(ctx, args, &out, &errs); code != exitOK {
			t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
		}
	case strings.HasPrefix(command, "TOKEN=") || words[0] == "curl" && strings.Contains(command, "//localhost:8090/"): // TestAPIPage executes these
		wantText(t, "docs/api.md", command)
	case words[0] == "curl":
		curl(t, words[1:], member())
	case strings.HasPrefix(command, "source <(connector completion "): // TestCompletion_Bash executes it
		wantText(t, "cmd/connector/completion_test.go", "\n"+command+"\n")
	case command == "go test ./...":
		wantText(t, ".ci/run", command)
	case strings.HasPrefix(command, "go test ") && slices.Contains(words, "-run"):
		selectsTest(t, words)
	case strings.HasPrefix(command, "go run ./test/mutants -run "):
		wantText(t, "test/mutants/list_delta.go", strings.Trim(words[4], "'"))
	case words[0] == "make" && len(words) > 1 && !slices.ContainsFunc(words[2:], func(w string) bool { return !strings.Contains(w, "=") }):
		wantText(t, "Makefile", "\n"+words[1]+":")
	case strings.HasPrefix(command, "docker compose -f docker-compose.minio.yml"): // this needs Docker, so TestComposeFitsConfig only reads the file
		if !slices.Contains(words, "up") && !slices.Contains(words, "down") {
			t.Errorf("unknown")
		}
	default:
		t.Error("no test executes this command")
	}
}

// initHere replaces the places in the arguments of init by those of a broker in this process and a folder of this test.
func initHere(t *testing.T, args []string) []string {
	t.Helper()
	l := newLake(t, "topics: {unused: {}}")
	here := map[string]string{"--broker": l.Broker.ListenAddrs()[0], "--storage": "file://" + filepath.ToSlash(l.Dir) + "/lake"}
	for i := range args[:len(args)-1] {
		if place, ok := here[args[i]]; ok {
			args[i+1] = place
		}
		if args[i] == "--topic" {
			l.Create(args[i+1], 1)
			l.Produce(args[i+1], 3, 0)
		}
	}
	return append(args, "--output", filepath.Join(l.Dir, "written.yaml"), "--timeout", "5m")
}

// selectsTest checks that the pattern after -run matches a test of the folder, and that the folder has the flags after
// -args. Other suites execute these tests.
func selectsTest(t *testing.T, words []string) {
	t.Helper()
	pattern, err := regexp.Compile(strings.Trim(words[slices.Index(words, "-run")+1], "'"))
	if err != nil {
		t.Fatal(err)
	}
	folder := words[slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "./") })]
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(b)
	}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(source.String(), -1)
	if !slices.ContainsFunc(declared, func(name []string) bool { return pattern.MatchString(name[1]) }) {
		t.Errorf("%s has no test that matches %s", folder, pattern)
	}
	if args := slices.Index(words, "-args"); args >= 0 && !strings.Contains(source.String(), strconv.Quote(strings.TrimPrefix(words[args+1], "-"))) {
		t.Errorf("%s has no flag %s", folder, words[args+1])
	}
}

// TestOtherCommandsInDocs checks the commands in blocks that need Docker, a cluster, an account or root, which no test has: the
// files of this repository that they name exist, and the connector accepts its command lines. test/pods builds and runs the image by
// other means; test/chart renders the chart with the values of the page.
func TestOtherCommandsInDocs(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string][]string{
		"```sh needs-docker": {"docker"}, "```sh needs-cluster": {"helm", "kubectl"},
		"```sh needs-aws": {"aws", "connector"}, "```sh needs-root": {"useradd", "install", "systemctl", "journalctl", "sudo"},
	}
	commands := 0
	for _, page := range pages {
		text := read(t, page)
		for fence, allowed := range programs {
			for _, command := range commandsIn(text, fence) {
				commands++
				words := strings.Fields(command)
				if !slices.Contains(allowed, words[0]) {
					t.Errorf("%s: %s in a block %s", page, command, fence)
				}
				for _, word := range words {
					if strings.HasPrefix(word, "deploy/") && !strings.HasPrefix(word, "deploy/sluice") { // deploy/sluice is a Deployment
						if _, err := os.Stat(word); err != nil {
							t.Errorf("%s: %s: %v", page, command, err)
						}
					}
				}
				if strings.HasPrefix(command, "connector ") {
					if err := parsed(command); err != nil {
						t.Errorf("%s: %s: %v", page, command, err)
					}
				}
				if _, line, ok := strings.Cut(command, "/connector "); ok && words[0] != "install" {
					if err := parsed("connector " + line); err != nil {
						t.Errorf("%s: %s: %v", page, command, err)
					}
				}
			}
		}
	}
	if commands < 5 {
		t.Errorf("only %d commands found: are the blocks still marked?", commands)
	}
}

func wantText(t *testing.T, file, text string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), text) {
		t.Errorf("%s does not execute %q", file, strings.TrimSpace(text))
	}
}
