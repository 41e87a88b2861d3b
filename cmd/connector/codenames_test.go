package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCodeNamesInDocs expects each file that docs/architecture.md and CONTRIBUTING.md name to exist. A function or type
// before a file, as in `Guard.Do` (`reliability/guard.go`), must be declared in it.
func TestCodeNamesInDocs(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	path := regexp.MustCompile("`((?:connector|sink|reliability|health|internal|cmd|classify|idempotency|test)/[a-z_/0-9]+(?:\\.go)?)`")
	declared := regexp.MustCompile("`([A-Za-z]+(?:\\.[A-Za-z]+)?)` (?:\\(|in )`([a-z_/0-9]+\\.go)`")
	paths, names := 0, 0
	for _, page := range []string{"docs/architecture.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range path.FindAllStringSubmatch(string(text), -1) {
			paths++
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names++
			if !declares(t, m[2], m[1]) {
				t.Errorf("%s: %s does not declare %s", page, m[2], m[1])
			}
		}
	}
	if paths < 60 || names < 30 {
		t.Errorf("found %d paths and %d names: are they still written the same way?", paths, names)
	}
}

// declares reports whether a file declares a name. The name is a function, a type, a variable, or Type.Method.
func declares(t *testing.T, file, name string) bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return false
	}
	receiver, method, isMethod := strings.Cut(name, ".")
	found := false
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch d := n.(type) {
		case *ast.FuncDecl:
			switch {
			case d.Recv == nil:
				found = found || !isMethod && d.Name.Name == name
			case isMethod && d.Name.Name == method:
				of := d.Recv.List[0].Type
				if star, pointer := of.(*ast.StarExpr); pointer {
					of = star.X
				}
				id, plain := of.(*ast.Ident)
				found = found || plain && id.Name == receiver
			}
			return false
		case *ast.TypeSpec:
			found = found || d.Name.Name == name
		case *ast.ValueSpec:
			found = found || d.Names[0].Name == name
		}
		return true
	})
	return found
}
