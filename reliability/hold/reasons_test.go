package hold_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sluice/reliability/hold"
)

// TestReasons: each reason that hold.go declares has a rule and a section in docs/operations.md. The test reads the
// constants from the source, because Go cannot list them.
func TestReasons(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "hold.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var constants []hold.Reason
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != "Reason" {
			return true
		}
		reason, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Error(err)
		}
		constants = append(constants, hold.Reason(reason))
		return true
	})
	slices.Sort(constants)
	if all := hold.Reasons(); !slices.Equal(all, constants) {
		t.Errorf("the table has %v, the constants are %v", all, constants)
	}
	docs, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`(?m)^### ([a-z_, ]+)$`).FindAllStringSubmatch(string(docs), -1)
	for _, r := range constants {
		if ends := r.EndsBy(); !strings.HasPrefix(ends, "by itself ") && !strings.HasPrefix(ends, "an operator: ") {
			t.Errorf("%s ends %q: begin with who ends it", r, ends)
		}
		described := slices.ContainsFunc(sections, func(m []string) bool { return slices.Contains(strings.Split(m[1], ", "), string(r)) })
		if !described {
			t.Errorf("docs/operations.md has no section %s", r)
		}
	}
}

func TestReason_Command(t *testing.T) {
	for _, c := range []struct {
		reason    hold.Reason
		topic     string
		partition int32
		offset    int64
		want      string
	}{
		{hold.Truncated, "orders", 3, 7, "connector offsets accept-gap orders:3 --reason truncated"},
		{hold.TopicRecreated, "orders", 3, 7, "connector offsets start orders --reason topic_recreated"},
		{hold.Poison, "orders", 3, 7, "connector offsets skip orders:3@7 --reason poison"},
		{hold.Poison, "orders", 3, -1, ""},
		{hold.Poison, "orders", -1, 7, ""},
		{hold.Oversize, "orders", 3, 7, "connector offsets skip orders:3@7 --batch --reason oversize"},
		{hold.Oversize, "orders", 3, -1, ""},
		{hold.Flood, "orders", 3, 7, "connector deadletters allow orders --reason flood"},
		{hold.Paused, "", -1, -1, "connector resume --all --reason paused"},
		{hold.Paused, "orders", -1, -1, "connector resume orders --reason paused"},
		{hold.StoreDown, "orders", 3, 7, ""},
		{"unknown", "orders", 3, 7, ""},
	} {
		if got := c.reason.Command(c.topic, c.partition, c.offset); got != c.want {
			t.Errorf("%s of %s:%d@%d: %q, want %q", c.reason, c.topic, c.partition, c.offset, got, c.want)
		}
	}
}

func TestReason_LogFunc(t *testing.T) {
	for _, c := range []struct {
		reason hold.Reason
		level  string
	}{{hold.Paused, "INFO"}, {hold.StoreDown, "WARN"}, {hold.Truncated, "ERROR"}, {"unknown", "ERROR"}} {
		var log bytes.Buffer
		c.reason.LogFunc(slog.New(slog.NewTextHandler(&log, nil)))("HOLD")
		if !strings.Contains(log.String(), "level="+c.level+" msg=HOLD") {
			t.Errorf("%s: %s", c.reason, log.String())
		}
	}
}
