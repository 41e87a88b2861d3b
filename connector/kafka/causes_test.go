package kafka

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"sluice/classify/classtest"
	"sluice/connector/kafka/dial"
)

// TestEveryCause: each cause of package dial has the class that classtest/classes.txt lists for it. The test reads the
// causes from the source of the package, so that a new cause without a row fails it.
func TestEveryCause(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "dial/cause.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]error{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		typed, ok := spec.Type.(*ast.Ident)
		if !ok || typed.Name != "Cause" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		known[text] = Classify(&dial.Error{Address: "broker:9092", Cause: dial.Cause(text)})
		return true
	})
	classtest.Check(t, "kafka connection", known)
}
