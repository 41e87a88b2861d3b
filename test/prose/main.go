// Command prose checks the words of the project with Vale: documentation, comments in Go and YAML, and the strings of
// Go code outside of tests and test/.
//
//	go run ./test/prose VALE
//
// VALE is the program, which test/lab/install vale prints. Vale reads Markdown and comments in Go by itself. Texts in
// strings and comments in YAML are copied into files of their own, each text on the line that it has in its source.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "prose: name the program vale: go run ./test/prose \"$(test/lab/install vale)\"")
		os.Exit(2)
	}
	findings, err := run(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	}
	fmt.Print(findings)
	if findings != "" {
		fmt.Printf("prose: %d findings; test/prose/styles has the rules\n", strings.Count(findings, "\n"))
		os.Exit(1)
	}
}

// run returns the findings of Vale in the files that Git tracks or would add, one per line.
func run(ctx context.Context, vale string) (string, error) {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return "", fmt.Errorf("list the files: %w", err)
	}
	texts, err := os.MkdirTemp("", "sluice-prose-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(texts) }()
	args := []string{"--config", ".vale.ini", "--output", "line", "--no-exit"}
	for name := range strings.FieldsSeq(string(list)) {
		if _, err := os.Stat(name); err != nil || strings.Contains(name, "testdata/") {
			continue
		}
		var text []byte
		switch filepath.Ext(name) {
		case ".md":
			args = append(args, name)
		case ".go":
			args = append(args, name)
			if !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "test/") {
				text, err = stringsOf(name)
			}
		case ".yaml", ".yml":
			if !strings.HasPrefix(name, "test/prose/") {
				text, err = commentsOf(name)
			}
		}
		if err != nil {
			return "", err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		copied := filepath.Join(texts, name+".txt")
		if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			return "", err
		}
		args = append(args, copied)
	}
	cmd := exec.CommandContext(ctx, vale, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("run vale: %w: %s", err, out), errors.New(stderr.String()))
	}
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		b.WriteString(strings.Replace(strings.TrimPrefix(line, texts+"/"), ".txt:", ":", 1))
	}
	return b.String(), nil
}

// stringsOf returns the string literals of a Go file that have a space in them, each on its own line.
func stringsOf(name string) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var lines page
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil || !strings.Contains(text, " ") {
			return true
		}
		line := set.Position(lit.Pos()).Line
		if !strings.HasPrefix(lit.Value, "`") {
			text = strings.ReplaceAll(text, "\n", " ")
		}
		i := 0
		for part := range strings.SplitSeq(text, "\n") {
			lines.put(line+i, part)
			i++
		}
		return true
	})
	return lines.bytes(), nil
}

// commentsOf returns the comments of a YAML file, each on its own line.
func commentsOf(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var lines page
	for i, line := range strings.Split(string(text), "\n") {
		if _, comment, ok := strings.Cut(" "+line, " #"); ok {
			lines.put(i+1, comment)
		}
	}
	return lines.bytes(), nil
}

// page is a text as a list of lines.
type page []string

// put adds text to a line. Lines are counted from 1.
func (p *page) put(line int, text string) {
	for len(*p) < line {
		*p = append(*p, "")
	}
	if (*p)[line-1] != "" {
		text = " · " + text
	}
	(*p)[line-1] += strings.TrimSpace(text)
}

func (p *page) bytes() []byte { return []byte(strings.Join(*p, "\n") + "\n") }
