package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"

	"sluice/health"
	"sluice/reliability/hold"
)

// TestSecurityPage_Keys expects each key that docs/security.md names to be a key of the configuration.
func TestSecurityPage_Keys(t *testing.T) {
	paths, seen := map[string]bool{}, 0
	for _, path := range documentedKeys(t) {
		paths[strings.TrimPrefix(path, "defaults.")] = true
	}
	sections := regexp.MustCompile("`((?:kafka|storage|fingerprints|members|health|ops|dead_letters)\\.[a-z0-9_.]+)(?:: [a-z]+)?`")
	for _, m := range sections.FindAllStringSubmatch(read(t, filepath.Join("..", "..", "docs", "security.md")), -1) {
		seen++
		if !paths[m[1]] {
			t.Errorf("docs/security.md names the key %s, which does not exist", m[1])
		}
	}
	if seen < 20 {
		t.Errorf("only %d keys found", seen)
	}
	for path := range paths {
		if strings.HasSuffix(path, ".insecure_plaintext") && !strings.Contains(read(t, filepath.Join("..", "..", "docs", "security.md")), "`"+path+"`") {
			t.Errorf("docs/security.md does not name the exception %s", path)
		}
	}
}

// kafkaRights returns the rights in Kafka that docs/security.md lists: for each resource, the names of its operations.
// The optional ones are included if optional is true.
func kafkaRights(t *testing.T, optional bool) map[string][]string {
	t.Helper()
	_, section, found := strings.Cut(read(t, filepath.Join("..", "..", "docs", "security.md")), "\n## Rights in Kafka\n")
	if !found {
		t.Fatal("docs/security.md has no section Rights in Kafka")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rights := map[string][]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(line, "| `") || !strings.Contains(cells[2], "`") || !optional && strings.Contains(cells[3], "optional") {
			continue
		}
		resource, _, _ := strings.Cut(strings.TrimSpace(cells[1]), " (")
		for op := range strings.SplitSeq(cells[2], ",") {
			rights[resource] = append(rights[resource], strings.Trim(op, " `"))
		}
	}
	return rights
}

// TestSecurityPage_KafkaRights runs a member, with dead letters, their table and a canary, and the command check. With
// the rights that docs/security.md asks for, all must work. If one of these rights is missing, there must be a hold, or
// the canary must fail.
func TestSecurityPage_KafkaRights(t *testing.T) {
	rights := kafkaRights(t, false)
	for resource, want := range map[string]string{"each source topic": "Read", "each dead-letter topic": "Write Create Read", "the canary topic": "Create Write Read", "the group": "Read"} {
		if got := strings.Join(rights[resource], " "); got != want {
			t.Fatalf("%s: %s, want %s", resource, got, want)
		}
	}
	l := lakeWithRights(t, rights, "", "")
	s := l.start()
	l.Awaits("orders", map[string][]int64{"orders:0": {0}})
	l.Await("the dead letter is a row", func() bool { return len(l.Rows("orders_letters")["orders-dlq:0"]) == 1 })
	l.Await("a canary was seen", func() bool { return len(l.Rows("_sluice/p/canary")["p-canary:0"]) > 0 })
	l.Await("nothing is held", func() bool { return len(heldIn(s)) == 0 })
	if failing := s.Report().Canary.Failing; failing != nil {
		t.Errorf("the canary fails: %+v", failing)
	}
	all := lakeWithRights(t, kafkaRights(t, true), "", "")
	(&broker{t: t, client: all.Client}).commit("orders", 0, 0)                                                                                                          // unlike Kafka, this broker denies requests about a group that does not exist
	if out, _ := all.runs(exitFound, "check"); strings.Contains(out, "refused") || strings.Contains(out, "denied") || !strings.Contains(out, "ok       dead letters") { // exitFound, because check finds the committed offset
		t.Error(out)
	}
	for resource, ops := range rights {
		for _, op := range ops {
			t.Run(resource+" without "+op, func(t *testing.T) {
				l := lakeWithRights(t, rights, resource, op)
				s := l.start()
				l.Await("a hold or the canary says so", func() bool {
					r := s.Report()
					return resource == "the canary topic" && r.Canary != nil && r.Canary.Failing != nil || slices.ContainsFunc(r.Holds, func(h health.Hold) bool {
						return h.Reason == string(hold.KafkaDenied) || h.Reason == string(hold.DeadLettersUnavailable)
					})
				})
			})
		}
	}
}

// lakeWithRights returns a lake whose Kafka user has these rights, except for one: the operation with the name in
// without, on the resource.
func lakeWithRights(t *testing.T, rights map[string][]string, resource, without string) *lake {
	t.Helper()
	names := map[string]string{"each source topic": "orders", "each dead-letter topic": "orders-dlq", "the canary topic": "p-canary", "the group": "p"}
	operations := map[string]kmsg.ACLOperation{
		"Read": kmsg.ACLOperationRead, "Write": kmsg.ACLOperationWrite, "Create": kmsg.ACLOperationCreate, "Describe": kmsg.ACLOperationDescribe,
		"DescribeConfigs": kmsg.ACLOperationDescribeConfigs,
	}
	var acls []kfake.ACL
	for r, ops := range rights {
		kind := kmsg.ACLResourceTypeTopic
		if r == "the group" {
			kind = kmsg.ACLResourceTypeGroup
		}
		for _, op := range slices.DeleteFunc(slices.Clone(ops), func(op string) bool { return r == resource && op == without }) {
			if _, known := operations[op]; !known {
				t.Fatalf("docs/security.md names the operation %q, which Kafka does not have", op)
			}
			acls = append(acls, kfake.ACL{Resource: kind, Name: names[r], Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operations[op], Allow: true})
		}
	}
	l := newLakeOn(t, "topics: {orders: {}}\ndefaults: {schema: \"n int\", commit: {every: 100ms}}",
		", sasl: {mechanism: plain, username: sluice, password: secret, insecure_plaintext: true}",
		[]kgo.Opt{kgo.SASL(saslplain.Auth{User: "root", Pass: "root"}.AsMechanism())},
		kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "sluice", "secret", acls...))
	l = l.as("health: {enabled: false}", "health: {enabled: false, canary: {topic: p-canary, every: 1s}}")
	l.Create("orders", 1)
	l.Produce("orders", 1, 0)
	if err := l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(`{"n":"bad`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestSecurityPage_CommandRights runs each command for which docs/security.md has a table of rights. With exactly these
// rights the command must succeed, and without any one of them it must fail.
func TestSecurityPage_CommandRights(t *testing.T) {
	arguments := map[string][]string{
		"holds": {"holds"}, "offsets show": {"offsets", "show"}, "deadletters list": {"deadletters", "list"}, "deadletters show": {"deadletters", "show", "orders:0@1"},
		"deadletters replay": {"deadletters", "replay", "orders:0@1", "--value-file", "FILE", "--reason", "test", "--yes"},
		"verify --kafka":     {"verify", "--kafka"},
	}
	rights := map[string]map[string][]string{}
	for _, row := range tableRows(t, read(t, filepath.Join("..", "..", "docs", "security.md")), "command | resource") {
		for _, command := range codes(row[0]) {
			if rights[command] == nil {
				rights[command] = map[string][]string{}
			}
			for resource := range strings.SplitSeq(row[1], ", ") {
				rights[command][resource] = append(rights[command][resource], codes(row[2])...)
			}
		}
	}
	run := func(t *testing.T, command, resource, without string) (code int, text string) {
		t.Helper()
		l := lakeWithRights(t, rights[command], resource, without).as(", canary: {topic: p-canary, every: 1s}", "")
		root := l.as("username: sluice, password: secret", "username: root, password: root")
		for range 2 { // the second run moves the dead letter into its table
			root.runs(exitOK, "run", "--until-current")
		}
		args := slices.Clone(arguments[command])
		if i := slices.Index(args, "FILE"); i >= 0 {
			args[i] = filepath.Join(t.TempDir(), "value")
			if err := os.WriteFile(args[i], []byte(`{"n":7}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, out, errs := connectorRun(t, append(args, "--config", l.Config)...)
		return code, out + errs
	}
	for command := range arguments {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			if code, text := run(t, command, "", ""); code != exitOK {
				t.Errorf("exit code %d: %s", code, text)
			}
			for resource, ops := range rights[command] {
				for _, op := range ops {
					if code, text := run(t, command, resource, op); code == exitOK {
						t.Errorf("without %s on %s it succeeds: %s", op, resource, text)
					}
				}
			}
		})
		if len(rights[command]) == 0 {
			t.Errorf("the page has no rights of %s", command)
		}
	}
	for command := range rights {
		if arguments[command] == nil {
			t.Errorf("no test runs %s", command)
		}
	}
}
