package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"sluice/internal/fail"
	"sluice/internal/terminal"
)

// asked returns a cli that reads answer from stdin, and the buffers of its stdout and stderr. With terminal it behaves
// as on a terminal.
func asked(terminal bool, answer string) (c *cli, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &cli{
		env:   func(name string) (string, bool) { return map[string]string{"USER": "ada"}[name], name == "USER" },
		stdin: strings.NewReader(answer), stdout: stdout, stderr: stderr, terminal: func() bool { return terminal },
	}, stdout, stderr
}

func TestConfirm(t *testing.T) {
	for name, c := range map[string]struct {
		change         change
		terminal       bool
		answer         string
		do             bool
		code           int
		stdout, stderr string
	}{
		"yes":               {change{yes: true}, false, "", true, 0, "", ""},
		"dry run":           {change{dryRun: true}, false, "", false, 0, "the plan\n", "dry run: nothing was changed"},
		"dry run and yes":   {change{dryRun: true, yes: true}, true, "y\n", false, 0, "the plan\n", "nothing was changed"},
		"no terminal":       {change{}, false, "y\n", false, exitUsage, "", ""},
		"asked, y":          {change{}, true, "y\n", true, 0, "", "the plan\nDo it? [y/N] "},
		"asked, YES":        {change{}, true, " YES \n", true, 0, "", "Do it?"},
		"asked, n":          {change{}, true, "n\n", false, exitRefused, "", "Do it?"},
		"asked, just enter": {change{}, true, "\n", false, exitRefused, "", "Do it?"},
		"asked, hung up":    {change{}, true, "", false, exitRefused, "", "Do it?"},
		"asked, cut off":    {change{}, true, "y", false, exitRefused, "", "Do it?"},
	} {
		t.Run(name, func(t *testing.T) {
			cli, stdout, stderr := asked(c.terminal, c.answer)
			do, err := cli.confirm(t.Context(), &c.change, func(w io.Writer) error {
				_, err := io.WriteString(w, "the plan\n")
				return err
			})
			if do != c.do || codeOf(err) != c.code {
				t.Errorf("do %v, %v; want %v, exit code %d", do, err, c.do, c.code)
			}
			if stdout.String() != c.stdout || !strings.Contains(stderr.String(), c.stderr) || c.stderr == "" && stderr.Len() > 0 {
				t.Errorf("stdout %q, stderr %q", stdout, stderr)
			}
		})
	}
}

func TestConfirm_Interrupted(t *testing.T) {
	c, _, _ := asked(true, "")
	r, w := io.Pipe()
	defer w.Close()
	c.stdin = r
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if do, err := c.confirm(ctx, &change{}, func(io.Writer) error { return nil }); do || !errors.Is(err, context.Canceled) {
		t.Errorf("do %v %v", do, err)
	}
}

func TestCheckChange(t *testing.T) {
	c, _, _ := asked(false, "")
	for name, x := range map[string]struct {
		given, want change
		text        string
	}{
		"given":               {change{operator: " eva ", reason: " why "}, change{operator: "eva", reason: "why"}, ""},
		"$USER":               {change{reason: "why"}, change{operator: "ada", reason: "why"}, ""},
		"no reason":           {change{reason: " "}, change{}, "--reason"},
		"dry run":             {change{dryRun: true}, change{dryRun: true, operator: "ada"}, ""},
		"a novel as a reason": {change{reason: strings.Repeat("x", 2000)}, change{}, "1000"},
	} {
		got := x.given
		err := c.checkChange(&got)
		if x.text == "" && (err != nil || got != x.want) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		if x.text != "" && (fail.Of(err) != fail.KindUsage || !strings.Contains(err.Error(), x.text)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTerminal_NullDevice(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if terminal.Is(f) {
		t.Error("the null device is taken for a terminal")
	}
}

// TestPlan_ShownOnce expects a command to show its plan exactly once: before its question if it asks one, otherwise
// with the result.
func TestPlan_ShownOnce(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	const plan, done = "offsets [2, 5) are read again", "done: version "
	c, out, errs := asked(true, "y\n")
	root := c.root()
	root.SetArgs([]string{"offsets", "set", "orders:0", "2", "--reason", "r", "--config", l.Config})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String()+errs.String(), plan); n != 1 || !strings.HasPrefix(out.String(), done) {
		t.Errorf("the plan is shown %d times:\n%s%s", n, errs, out)
	}
	if !strings.Contains(errs.String(), "then move the position and resume:\n    DELETE FROM orders ") {
		t.Errorf("the statement has no line of its own:\n%s", errs)
	}
	whole, _ := l.runs(exitOK, "offsets", "set", "orders:1", "2", "--reason", "r", "--yes")
	if strings.Count(whole, plan) != 1 || !strings.Contains(whole, "\n\n"+done) {
		t.Errorf("with --yes:\n%s", whole)
	}
}
