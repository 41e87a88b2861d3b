package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMetrics_TopicLeaves expects the method leaves (or Leaves) in each metrics.go below connector/ to name every
// metric with the label topic. A metric that it does not name would keep the series of deleted topics.
func TestMetrics_TopicLeaves(t *testing.T) {
	files, err := filepath.Glob("../../connector/*/metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		var perTopic, deleted []string
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if field, ok := n.Key.(*ast.Ident); ok && hasTopicLabel(n.Value) {
					perTopic = append(perTopic, field.Name)
				}
			case *ast.FuncDecl:
				if n.Recv != nil && strings.EqualFold(n.Name.Name, "leaves") {
					ast.Inspect(n.Body, func(n ast.Node) bool {
						if s, ok := n.(*ast.SelectorExpr); ok {
							deleted = append(deleted, s.Sel.Name)
						}
						return true
					})
				}
			}
			return true
		})
		for _, field := range perTopic {
			checked++
			if !slices.Contains(deleted, field) {
				t.Errorf("%s: %s has the label topic, and leaves does not delete the series of a topic that is gone", file, field)
			}
		}
	}
	if checked < 10 {
		t.Errorf("found %d metrics with the label topic: are they still made in metrics.go?", checked)
	}
}

// hasTopicLabel reports whether an expression is a call of a prometheus.New…Vec whose labels contain topic.
func hasTopicLabel(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return false
	}
	maker, ok := call.Fun.(*ast.SelectorExpr)
	labels, isList := call.Args[1].(*ast.CompositeLit)
	return ok && isList && strings.HasSuffix(maker.Sel.Name, "Vec") && slices.ContainsFunc(labels.Elts, func(e ast.Expr) bool {
		label, ok := e.(*ast.BasicLit)
		return ok && label.Value == `"topic"`
	})
}
