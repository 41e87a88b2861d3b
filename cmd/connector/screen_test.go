package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"sluice/internal/terminal"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// evil has each kind of text that can control a terminal: an escape sequence, its C1 form, a bidirectional override, an
// invisible character, line separators, and bytes that are not UTF-8.
const evil = "\x1b[2J\u009b2J\u202e\u2066\u200b\u2028\x7f\r\x9b!"

// steers describes the first character of a text that could control a terminal, "" if there is none.
func steers(text string) string {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 || r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return fmt.Sprintf("%q in %q", text[i:i+n], text[max(0, i-40):min(len(text), i+40)])
		}
		i += n
	}
	return ""
}

// TestScreen_JSON expects JSON to have the same value after escaping.
func TestScreen_JSON(t *testing.T) {
	want := map[string]string{"a" + evil[:len(evil)-2]: "\U000e0001" + strings.ToValidUTF8(evil, "?")}
	var out bytes.Buffer
	if err := writeJSON(terminal.NewScreen(&out, nil), want); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" || steers(out.String()) != "" {
		t.Errorf("%s (-want +got):\n%s", steers(out.String()), d)
	}
}

// everyCommand calls do with the words of each command that can be run.
func everyCommand(cmd *cobra.Command, do func(path []string)) {
	if cmd.Runnable() && cmd.Name() != "help" && cmd.Name() != "completion" {
		do(strings.Fields(cmd.CommandPath())[1:])
	}
	for _, sub := range cmd.Commands() {
		everyCommand(sub, do)
	}
}

// TestHostileText_EveryCommand expects that no file name, configuration or argument can control the terminal of an
// operator.
func TestHostileText_EveryCommand(t *testing.T) {
	dir := t.TempDir()
	hostileConfig := filepath.Join(dir, "hostile.yaml")
	text := "pipeline: \"p\\e[2J\\u202e\"\nkafka: {brokers: [\"a\\u009b:x\"]}\nstorage: {url: \"file://\\e[2J\"}\n\"key\\e[2J\\u202e\": 1\ntopics: {\"t\\u202e\\e\": {}}\n"
	if err := os.WriteFile(hostileConfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	commands := 0
	everyCommand((&cli{}).root(), func(path []string) {
		commands++
		for _, args := range [][]string{
			{"--config", filepath.Join(dir, "no"+evil)},
			{"--config", hostileConfig},
			{"--" + evil},
			{evil, evil, evil, evil},
			{"--output", evil},
			{"--topic", evil, "--config", hostileConfig},
		} {
			_, out, errs := connectorRun(t, append(slices.Clone(path), args...)...)
			if bad := steers(out + errs); bad != "" {
				t.Errorf("connector %q: %s", append(path, args...), bad)
			}
		}
	})
	if commands < 30 {
		t.Errorf("%d commands", commands)
	}
}

// TestHostileText_Lake expects commands to escape text that other programs write to a table and the operations log.
func TestHostileText_Lake(t *testing.T) {
	l := newLake(t, twoTopics)
	l.Create("orders", 2)
	l.Create("users", 1)
	l.Produce("orders", 3, 0, 1)
	l.runs(0, "run", "--until-current")
	l.runs(0, "pause", "orders", "--operator", "ada"+evil, "--reason", evil, "--yes")
	state, err := deltalog.Load(t.Context(), objstore.Sub(l.Store, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	m := state.Metadata
	odd := strings.ToValidUTF8(evil, "?")
	m.ID, m.Configuration = "id"+odd, map[string]string{"p" + odd: odd}
	body, err := deltalog.Encode([]deltalog.Action{
		deltalog.CommitInfo{Operation: "SET" + odd}, m, deltalog.Txn{AppID: "app" + odd, Version: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Append("orders", strings.TrimSpace(string(body)))
	for _, command := range [][]string{
		{"table", "inspect"},
		{"holds"},
		{"offsets", "show"},
		{"audit", "list"},
		{"audit", "verify"},
		{"check"},
		{"verify"},
		{"deadletters", "list", "orders"},
		{"fingerprints", "stats"},
		{"offsets", "adopt", "orders", "--dry-run"},
		{"offsets", "start", "orders", "--dry-run"},
		{"config", "print"},
		{"validate"},
	} {
		for _, form := range []string{"table", "wide", "json"} {
			_, out, errs := connectorRun(t, append(slices.Clone(command), "--config", l.Config, "--output", form)...)
			if bad := steers(out + errs); bad != "" {
				t.Errorf("%v %s: %s", command, form, bad)
			}
			if form == "json" && out != "" && !json.Valid([]byte(out)) {
				t.Errorf("%v: no JSON: %s", command, out)
			}
		}
	}
	_, out, _ := connectorRun(t, "table", "inspect", "--topic", "orders", "--config", l.Config)
	if !strings.Contains(out, `id\x1b[2J\u009b2J\u202e`) {
		t.Errorf("the id is not shown:\n%s", out)
	}
}
