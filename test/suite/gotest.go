package main

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// tests is the result of a run of `go test -json`.
type tests struct {
	passed int
	failed []failure
}

type failure struct{ name, output string }

// event is a line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // the package, in events of builds, which have no Package
	Test       string
	Output     string
}

// state is what is known of a test. With an empty field test it is about a whole package.
type state struct {
	pkg, test   string
	result      string // "pass", "fail" or "skip"; "" if the test did not end
	output      strings.Builder
	ran, parent bool // whether it began, and whether it has subtests
}

// readTests reads the events of `go test -json` and copies their output to log.
func readTests(r io.Reader, log io.Writer) (tests, error) {
	states := make(map[string]*state)
	var order []*state
	get := func(pkg, test string) *state {
		key := pkg + "\x00" + test
		s, ok := states[key]
		if !ok {
			s = &state{pkg: pkg, test: test}
			states[key] = s
			order = append(order, s)
		}
		return s
	}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if err == io.EOF {
				return count(order), nil
			}
			return tests{}, err
		}
		var e event
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			e = event{Action: "output", Output: string(line)} // a line of the go command itself
		}
		if e.Output != "" {
			if _, err := io.WriteString(log, e.Output); err != nil {
				return tests{}, err
			}
		}
		if e.Package == "" { // an event of a build, whose ImportPath is "path" or "path [path.test]"
			e.Package, _, _ = strings.Cut(e.ImportPath, " ")
			e.Package = strings.TrimSuffix(e.Package, "_test")
		}
		s := get(e.Package, e.Test)
		switch e.Action {
		case "run":
			s.ran = true
		case "pass", "fail", "skip":
			s.result = e.Action
		case "output", "build-output":
			s.output.WriteString(e.Output)
		}
		for i, char := range e.Test {
			if char == '/' {
				get(e.Package, e.Test[:i]).parent = true
			}
		}
	}
}

// count counts tests without subtests. A test with subtests counts only if it failed although all its subtests passed,
// a package only if it failed without a failing test.
func count(states []*state) tests {
	var t tests
	bad := make(map[string]bool) // the packages in which a test failed
	fail := func(s *state, why string) {
		name := strings.TrimSpace(s.pkg + " " + s.test)
		t.failed = append(t.failed, failure{name + why, s.output.String()})
		bad[s.pkg] = true
	}
	children := func(s *state) bool { // reports whether a subtest of s did not pass
		return slices.ContainsFunc(states, func(o *state) bool {
			return o.pkg == s.pkg && strings.HasPrefix(o.test, s.test+"/") && o.result != "pass"
		})
	}
	for _, s := range states {
		switch {
		case s.test == "" || s.parent && (s.result == "pass" || children(s)):
		case s.result == "pass":
			t.passed++
		case s.result == "fail":
			fail(s, "")
		case s.result == "skip":
			fail(s, ": skipped, which nothing here may be")
		case s.ran: // a name before a slash that never ran as a test is none
			fail(s, ": did not end")
		}
	}
	for _, s := range states {
		if s.test == "" && s.result == "fail" && !bad[s.pkg] {
			fail(s, ": failed outside of its tests")
		}
	}
	return t
}
