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

// TestEveryCause compares the classes of all causes of package dial with a table. It reads the causes from the source
// of the package, so that a new cause fails the test.
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
