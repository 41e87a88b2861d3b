package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// bash runs a script in which the command connector is this program. It returns what the script prints.
func bash(t *testing.T, script string) string {
	t.Helper()
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal("install bash: the tests of its completion run it")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "--norc", "-c", script)
	cmd.Env = append(os.Environ(), "SELF="+self, asConnector+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// completing defines connector and the function of the package bash-completion that the script calls, loads the script,
// and completes the last word of a line.
const completing = `
connector() { "$SELF" "$@"; }
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
__ltrim_colon_completions() { :; }
compopt() { :; }
source <(connector completion bash)
COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9
__start_connector
printf '%%s\n' "${COMPREPLY[@]}"`

// TestCompletion_Bash: bash completes commands, flags, their values, and the topics of the configuration.
func TestCompletion_Bash(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := "pipeline: p\nkafka: {brokers: [a:9092], sasl: {mechanism: plain, username: u, password: \"${UNSET_PASSWORD}\"}, tls: {enabled: true}}\n" +
		"storage: {url: \"file:///nowhere\"}\ndefaults: {schema: n int}\ntopics: {orders: {}, order-lines: {}, users: {}}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"connector offsets a":                                     "accept-gap adopt",
		"connector completion ":                                   "bash fish zsh",
		"connector holds --output ":                               "json table wide",
		"connector version --output ":                             "json table",
		"connector holds --timeo":                                 "--timeout",
		"connector loglevel ":                                     "debug error info warn",
		"connector deadletters replay-all --mode ":                "direct topic",
		"connector deadletters list --state p":                    "parked pending",
		"connector pause --config " + config + " o":               "order-lines orders",
		"connector pause --config " + config + " orders o":        "order-lines",
		"connector holds --config " + config + " --topic u":       "users",
		"connector deadletters list --config " + config + " us":   "users",
		"connector deadletters list --config /no/such/file.yaml ": "",
		"connector validate ":                                     "",
	} {
		words := make([]string, 0, 8)
		for w := range strings.SplitSeq(line, " ") {
			words = append(words, "'"+w+"'")
		}
		var got []string
		for l := range strings.SplitSeq(bash(t, fmt.Sprintf(completing, strings.Join(words, " "))), "\n") {
			if word, _, _ := strings.Cut(strings.TrimSpace(l), " "); word != "" {
				got = append(got, word)
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(strings.Fields(want), got); d != "" && want+strings.Join(got, "") != "" {
			t.Errorf("%q (-want +got):\n%s", line, d)
		}
	}
}

// TestCompletion_Scripts: each shell that this machine has accepts its script.
func TestCompletion_Scripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		code, script, errs := connectorRun(t, "completion", shell)
		if code != exitOK || !strings.Contains(script, "__complete") || errs != "" {
			t.Errorf("%s: exit code %d\n%s", shell, code, errs)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // the test of bash runs on each machine of this project
		}
		cmd := exec.CommandContext(t.Context(), path, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s -n: %v\n%s", shell, err, out)
		}
	}
	expect(t, 2, "", `invalid argument "tcsh"`, "completion", "tcsh")
}

// TestCompletion_SameAsHelp: a shell offers exactly the commands that the help lists, at each level.
func TestCompletion_SameAsHelp(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		var want []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				want = append(want, sub.Name())
			}
			visit(sub)
		}
		if len(want) == 0 {
			return
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		_, out, _ := connectorRun(t, append(append([]string{cobra.ShellCompRequestCmd}, path...), "")...)
		var got []string
		for line := range strings.Lines(out) {
			name, _, described := strings.Cut(strings.TrimSpace(line), "\t")
			if described && name != "help" {
				got = append(got, name)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", cmd.CommandPath(), d)
		}
	}
	visit((&cli{}).root())
}
