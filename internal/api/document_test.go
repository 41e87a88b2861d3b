package api

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
)

// loadDocument returns the document, validated as OpenAPI 3.1. kin-openapi checks values with a validator of JSON Schema
// 2020-12, which 3.1 uses.
func loadDocument(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater(), openapi3.AllowExtensionsWithRef()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestDocument_Routes compares the document with the routes, both ways: path, method, role, query parameters and body.
func TestDocument_Routes(t *testing.T) {
	doc := loadDocument(t)
	documented, served := map[string]string{}, map[string]string{}
	describe := func(role string, query []string, body, key bool) string {
		slices.Sort(query)
		text := role + " ?" + strings.Join(query, "&")
		if body {
			text += " body"
		}
		if key {
			text += " key"
		}
		return text
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			var query []string
			key := false
			for _, p := range op.Parameters {
				if p.Value.In == openapi3.ParameterInQuery {
					query = append(query, p.Value.Name)
				}
				key = key || p.Value.Name == "Idempotency-Key"
			}
			role, _ := op.Extensions["x-role"].(string)
			documented[method+" "+path] = describe(role, query, op.RequestBody != nil, key)
		}
	}
	for _, r := range routes() {
		served[r.method+" "+prefix+r.path] = describe(r.role.String(), slices.Clone(r.query), !r.bodiless(), r.kind == change || r.kind == starting)
		if r.role == 0 {
			t.Errorf("%s has no role", r.name())
		}
	}
	if d := cmp.Diff(documented, served); d != "" {
		t.Errorf("routes (-document +code):\n%s", d)
	}
}

// TestDocument_Codes: the list of codes in the document is that of the code.
func TestDocument_Codes(t *testing.T) {
	var documented, known []string
	for _, c := range loadDocument(t).Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		documented = append(documented, c.(string))
	}
	for c := range maps.Keys(statuses()) {
		known = append(known, string(c))
	}
	slices.Sort(documented)
	slices.Sort(known)
	if d := cmp.Diff(documented, known); d != "" {
		t.Errorf("codes (-document +code):\n%s", d)
	}
}

// TestDocs_Codes compares the table of codes in docs/api.md with the code.
func TestDocs_Codes(t *testing.T) {
	documented, known := map[string]string{}, map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([0-9]{3}) \\|").FindAllStringSubmatch(page(t), -1) {
		documented[m[1]] = m[2]
	}
	for c, status := range statuses() {
		known[string(c)] = strconv.Itoa(status)
	}
	if d := cmp.Diff(documented, known); d != "" {
		t.Errorf("codes (-docs +code):\n%s", d)
	}
}

// TestDocs_Roles compares the table of roles in docs/api.md with the routes.
func TestDocs_Roles(t *testing.T) {
	documented, known := map[string]string{}, map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(viewer|operator|replayer|admin)` \\|(.*)$").FindAllStringSubmatch(page(t), -1) {
		for _, m := range regexp.MustCompile("`((?:GET|POST|PUT|DELETE) [^`]+)`").FindAllStringSubmatch(row[2], -1) {
			documented[m[1]] = row[1]
		}
	}
	for _, r := range routes() {
		known[r.name()] = r.role.String()
	}
	if d := cmp.Diff(documented, known); d != "" {
		t.Errorf("roles (-docs +code):\n%s", d)
	}
}

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "api.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
