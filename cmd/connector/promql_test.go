package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A promQuery is the part of a PromQL expression that a test checks. promtool checks that the expression is valid.
type promQuery struct {
	selectors []promSelector
	lists     []string // the labels in lists such as by (...) and on (...)
	by        []promBy // from left to right: an outer aggregation comes before the aggregations in its operand
	rates     []string // the metrics to which rate and similar functions are applied
}

// promBy is an aggregation in an expression: its operand, and the labels that its result keeps.
type promBy struct {
	labels []string
	of     []promSelector
}

type promSelector struct {
	metric   string
	matchers []promTerm
}

type promTerm struct{ label, op, value string }

var (
	promWord    = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	promNumber  = regexp.MustCompile(`^[0-9.][0-9a-zA-Z.]*`)
	promString  = regexp.MustCompile("^(\"(\\\\.|[^\"\\\\])*\"|'(\\\\.|[^'\\\\])*'|`[^`]*`)")
	promMatcher = regexp.MustCompile("^\\s*([a-zA-Z_][a-zA-Z0-9_]*)\\s*(=~|!~|!=|=)\\s*(\"(?:\\\\.|[^\"\\\\])*\")\\s*,?\\s*")
	promRate    = regexp.MustCompile(`\b(rate|irate|increase|resets)\(\s*([a-zA-Z_:][a-zA-Z0-9_:]*)`)

	promOperators = []string{"and", "or", "unless", "bool", "offset", "atan2", "inf", "Inf", "nan", "NaN"}
	promLists     = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	promGroups    = []string{
		"sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk", "quantile",
	}
)

// parseQuery parses an expression, in which a value may be a Grafana variable.
func parseQuery(t *testing.T, text string) (q promQuery) {
	t.Helper()
	for _, m := range promRate.FindAllStringSubmatch(text, -1) {
		q.rates = append(q.rates, m[2])
	}
	rest := text
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		switch {
		case promString.MatchString(rest):
			rest = rest[len(promString.FindString(rest)):]
		case promNumber.MatchString(rest):
			rest = rest[len(promNumber.FindString(rest)):]
		case rest[0] == '[':
			_, rest, _ = strings.Cut(rest, "]")
		case promWord.MatchString(rest):
			word := promWord.FindString(rest)
			rest = strings.TrimSpace(rest[len(word):])
			switch {
			case slices.Contains(promLists, word):
				if list, after, ok := strings.Cut(rest, ")"); ok && list != "" && list[0] == '(' {
					at := len(q.lists)
					for label := range strings.SplitSeq(list[1:], ",") {
						if label = strings.TrimSpace(label); label != "" {
							q.lists = append(q.lists, label)
						}
					}
					rest = after
					if word == "by" {
						of := parseQuery(t, argument(t, rest))
						q.by = append(q.by, promBy{slices.Clone(q.lists[at:]), of.selectors})
					}
				}
			case slices.Contains(promOperators, word), slices.Contains(promGroups, word), strings.HasPrefix(rest, "("):
			default:
				s := promSelector{metric: word}
				if strings.HasPrefix(rest, "{") {
					rest = rest[1:]
					for m := promMatcher.FindStringSubmatch(rest); m != nil; m = promMatcher.FindStringSubmatch(rest) {
						s.matchers = append(s.matchers, promTerm{m[1], m[2], strings.Trim(m[3], `"`)})
						rest = rest[len(m[0]):]
					}
					if !strings.HasPrefix(rest, "}") {
						t.Fatalf("matchers of %s end in %.20q: %s", word, rest, text)
					}
					rest = rest[1:]
				}
				q.selectors = append(q.selectors, s)
			}
		default:
			rest = rest[1:]
		}
	}
	return q
}

// argument returns the text inside the parentheses with which text begins.
func argument(t *testing.T, text string) string {
	t.Helper()
	rest := strings.TrimSpace(text)
	if !strings.HasPrefix(rest, "(") {
		t.Fatalf("by (...) has to stand before its argument, not before %.20q", rest)
	}
	rest = rest[1:]
	for i, depth := 0, 1; i < len(rest); i++ {
		switch quoted := promString.FindString(rest[i:]); {
		case quoted != "":
			i += len(quoted) - 1
		case rest[i] == '(':
			depth++
		case rest[i] == ')':
			if depth--; depth == 0 {
				return rest[:i]
			}
		}
	}
	t.Fatalf("the parentheses do not end: %s", text)
	return ""
}

func TestParseQuery(t *testing.T) {
	got := parseQuery(t, `sum without (instance, pod) (rate(a_total{topic=~"$topic", reason!="x)"}[$__rate_interval])) / on (group) group_left ()
		max by (group) (b{reason=")"} offset 5m) > 1e3 and time() - c:d:max > 5 unless absent(up)`)
	want := promQuery{
		selectors: []promSelector{
			{"a_total", []promTerm{{"topic", "=~", "$topic"}, {"reason", "!=", "x)"}}}, {"b", []promTerm{{"reason", "=", ")"}}}, {metric: "c:d:max"}, {metric: "up"},
		},
		lists: []string{"instance", "pod", "group", "group"},
		by:    []promBy{{[]string{"group"}, []promSelector{{"b", []promTerm{{"reason", "=", ")"}}}}}},
		rates: []string{"a_total"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(promQuery{}, promBy{}, promSelector{}, promTerm{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
