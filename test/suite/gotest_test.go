package main

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCounts(t *testing.T) {
	const p, q = `"Package":"p"`, `"Package":"q"`
	for name, c := range map[string]struct {
		lines  []string
		passed int
		failed []string
	}{
		"leaves count, parents do not": {
			[]string{
				`{"Action":"run",` + p + `,"Test":"TestA"}`,
				`{"Action":"run",` + p + `,"Test":"TestA/one"}`,
				`{"Action":"run",` + p + `,"Test":"TestA/two/deep"}`,
				`{"Action":"pass",` + p + `,"Test":"TestA/two/deep"}`,
				`{"Action":"pass",` + p + `,"Test":"TestA/two"}`,
				`{"Action":"pass",` + p + `,"Test":"TestA/one"}`,
				`{"Action":"pass",` + p + `,"Test":"TestA"}`,
				`{"Action":"pass",` + p + `,"Test":"TestB"}`,
				`{"Action":"pass",` + p + `}`,
			}, 3, nil,
		},
		"a slash in a name is no parent": {
			[]string{
				`{"Action":"run",` + p + `,"Test":"TestA/one/two"}`,
				`{"Action":"pass",` + p + `,"Test":"TestA/one/two"}`,
				`{"Action":"pass",` + p + `,"Test":"TestA"}`,
			}, 1, nil,
		},
		"a failing leaf is not counted again": {
			[]string{
				`{"Action":"output",` + p + `,"Test":"TestA/one","Output":"why\n"}`,
				`{"Action":"fail",` + p + `,"Test":"TestA/one"}`,
				`{"Action":"fail",` + p + `,"Test":"TestA"}`,
				`{"Action":"fail",` + p + `}`,
			}, 0, []string{"p TestA/one"},
		},
		"a parent that fails by itself": {
			[]string{
				`{"Action":"pass",` + p + `,"Test":"TestA/one"}`,
				`{"Action":"fail",` + p + `,"Test":"TestA"}`,
				`{"Action":"fail",` + p + `}`,
			}, 1, []string{"p TestA"},
		},
		"skipped is failed": {
			[]string{`{"Action":"skip",` + p + `,"Test":"TestA"}`, `{"Action":"pass",` + p + `}`},
			0,
			[]string{"p TestA: skipped, which nothing here may be"},
		},
		"a package without tests is nothing": {
			[]string{`{"Action":"skip",` + p + `}`, `{"Action":"pass",` + q + `,"Test":"TestA"}`, `{"Action":"pass",` + q + `}`},
			1, nil,
		},
		"a package that does not build": {
			[]string{
				`{"ImportPath":"p [p.test]","Action":"build-output","Output":"syntax error\n"}`,
				`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
				`{"Action":"output",` + p + `,"Output":"FAIL p [build failed]\n"}`,
				`{"Action":"fail",` + p + `,"FailedBuild":"p [p.test]"}`,
			}, 0, []string{"p: failed outside of its tests"},
		},
		"a process that dies": {
			[]string{
				`{"Action":"run",` + p + `,"Test":"TestA"}`,
				`{"Action":"output",` + p + `,"Test":"TestA","Output":"panic\n"}`,
				`{"Action":"fail",` + p + `}`,
			}, 0, []string{"p TestA: did not end"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readTests(strings.NewReader(strings.Join(c.lines, "\n")+"\n"), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, f := range got.failed {
				failed = append(failed, f.name)
			}
			if diff := cmp.Diff(c.failed, failed); diff != "" || got.passed != c.passed {
				t.Errorf("%d passed, want %d; failed: %s", got.passed, c.passed, diff)
			}
		})
	}
}

func TestFuzzTargets(t *testing.T) {
	got := fuzzTargets("FuzzA\nFuzzB\nok  \tp\t0.1s\n?   \tq\t[no test files]\nok  \tr\t0.1s\nFuzzC\nok  \ts\t0.2s\n")
	want := []fuzzTarget{{"FuzzA", "p"}, {"FuzzB", "p"}, {"FuzzC", "s"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(fuzzTarget{})); diff != "" {
		t.Error(diff)
	}
}
