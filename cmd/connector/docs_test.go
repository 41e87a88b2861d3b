//go:build !nodemo

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestCommandsInDocs executes every command of the shell blocks in README and docs, or names who does. A command that
// nobody executes is an error.
func TestCommandsInDocs(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	files := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
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

func shellBlocks(text string) (commands []string) {
	in := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			in = line == "```sh"
		case in && line != "" && !strings.HasPrefix(line, "#"):
			commands = append(commands, line)
		}
	}
	return commands
}

// execute executes a command. member starts a member, once, and returns where it listens.
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
		case "run": // as far as it goes without its servers: it is told to stop before it begins
			cancel()
		}
		var out, errs bytes.Buffer
		if code := run(ctx, args, &out, &errs); code != exitOK {
			t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
		}
	case words[0] == "curl":
		curl(t, words[1:], member())
	case command == "go test ./...":
		wantText(t, ".ci/run", command)
	case words[0] == "make" && len(words) == 2:
		wantText(t, "Makefile", "\n"+words[1]+":")
	case strings.HasPrefix(command, "docker compose -f docker-compose.minio.yml"): // needs Docker; TestCompose reads the file
		if !slices.Contains(words, "up") && !slices.Contains(words, "down") {
			t.Errorf("unknown")
		}
	default:
		t.Error("nobody executes this command")
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
