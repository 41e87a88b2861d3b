//go:build lab

package rights

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"sluice/test/lab"
)

// secured is a broker with an authorizer. Its first listener is for administrators, the other one for the user sluice.
type secured struct {
	kafka *lab.Kafka
	admin *kadm.Client
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	k, err := lab.StartKafka(t.Context(), lab.KafkaOptions{
		Dir: t.TempDir(),
		Listeners: []lab.Listener{{Name: "SASL", Protocol: "SASL_PLAINTEXT", Settings: map[string]string{
			"sasl.enabled.mechanisms": "PLAIN",
			"plain.sasl.jaas.config":  `org.apache.kafka.common.security.plain.PlainLoginModule required user_sluice="secret";`,
		}}},
		Settings: []string{"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Kill() })
	return &secured{k, kadm.NewClient(client(t, k.Addr))}
}

func client(t *testing.T, address string, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(address), kgo.RecordRetries(1)}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// apply runs the script of deploy/rights with Kafka's own tool.
func (s *secured) apply(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := s.kafka.WriteTool(filepath.Join(dir, "kafka-acls.sh"), "org.apache.kafka.tools.AclCommand"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", path(t, "kafka-acls.sh"), s.kafka.Addr)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kafka-acls.sh: %v: %s", err, out)
	}
}

// right is one operation on one resource.
type right struct{ op, kind, name string }

// rightsOf returns the rights that the script of deploy/rights gives, one for each operation.
func rightsOf(t *testing.T) (all []right) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^acl "\$@" ((?:--operation \w+ )+)--(topic|group) (\S+)$`)
	for _, m := range line.FindAllStringSubmatch(file(t, "kafka-acls.sh"), -1) {
		for op := range strings.SplitSeq(strings.TrimSpace(m[1]), "--operation ") {
			if op = strings.TrimSpace(op); op != "" {
				all = append(all, right{op, m[2], m[3]})
			}
		}
	}
	return all
}

// acls returns the rights as ACLs of the user sluice.
func acls(t *testing.T, rights ...right) *kadm.ACLBuilder {
	t.Helper()
	b := kadm.NewACLs().Allow("User:sluice").AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral)
	for _, r := range rights {
		op, err := operation(r.op)
		if err != nil {
			t.Fatal(err)
		}
		b = b.Operations(op)
		if r.kind == "group" {
			b = b.Groups(r.name)
		} else {
			b = b.Topics(r.name)
		}
	}
	return b
}

func operation(name string) (kadm.ACLOperation, error) {
	switch name {
	case "Read":
		return kadm.OpRead, nil
	case "Write":
		return kadm.OpWrite, nil
	case "Create":
		return kadm.OpCreate, nil
	case "DescribeConfigs":
		return kadm.OpDescribeConfigs, nil
	}
	return 0, fmt.Errorf("unknown operation %s", name)
}

// TestKafka runs a member and commands with the ACLs of deploy/rights/kafka-acls.sh, and with one of them less. The user
// must be refused what the script does not allow.
func TestKafka(t *testing.T) {
	all := rightsOf(t)
	if len(all) != 10 {
		t.Fatalf("%d rights: %v", len(all), all)
	}
	s := newSecured(t)
	for _, topic := range []string{"orders", "others"} {
		if err := s.kafka.CreateTopic(t.Context(), topic, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	produce(t, s.kafka.Addr, 0)
	start := func(t *testing.T) *pipeline {
		t.Helper()
		return configured(t, "url: file://"+t.TempDir(), "brokers: ["+s.kafka.Addrs["SASL"]+"], sasl: {mechanism: plain, username: sluice, password: secret}", "}")
	}
	s.apply(t)
	described, err := s.admin.DescribeACLs(t.Context(), kadm.NewACLs().AnyResource().Allow().AllowHosts().Operations().ResourcePatternType(kadm.ACLPatternAny))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, d := range described {
		n += len(d.Described)
	}
	if n != len(all) {
		t.Errorf("the script made %d ACLs, and the test reads %d rights from it", n, len(all))
	}

	p := start(t)
	works := func(r *report) bool {
		return len(r.Holds) == 0 && r.position() >= 3 && r.canarySeen()
	}
	p.member(t, "all ACLs", works)
	for _, command := range []string{"check", "verify --kafka", "offsets show", "holds", "deadletters list"} {
		if code, text := p.runs(t, strings.Fields(command)...); code != 0 || strings.Contains(text, "grant") {
			t.Errorf("%s: exit code %d: %s", command, code, text)
		}
	}
	s.refuses(t)

	for _, r := range all {
		t.Run(fmt.Sprintf("without %s on %s %s", r.op, r.kind, r.name), func(t *testing.T) {
			if r.op == "Create" { // needed only until the topic exists
				if _, err := s.admin.DeleteTopics(t.Context(), r.name); err != nil {
					t.Fatal(err)
				}
			}
			removed := acls(t, r)
			if _, err := s.admin.DeleteACLs(t.Context(), removed); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if _, err := s.admin.CreateACLs(t.Context(), removed); err != nil {
					t.Fatal(err)
				}
			}()
			// With committed offsets and an empty table the member would be held for them.
			if _, err := s.admin.DeleteGroup(t.Context(), "orders"); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
				t.Fatal(err)
			}
			p := start(t)
			if r.op == "DescribeConfigs" { // optional: the member works, and check says what it cannot see
				p.member(t, "optional", works)
				if _, text := p.runs(t, "check"); !strings.Contains(text, "DescribeConfigs") {
					t.Errorf("check does not name the missing right: %s", text)
				}
				return
			}
			p.member(t, "a hold or a failing canary", func(rep *report) bool {
				if r.name == "orders-canary" && r.op != "Read" {
					want := map[string]string{"Write": "Authorization", "Create": "Unknown Topic"}[r.op]
					c := rep.Components.Canary.Details
					return c.Failing != nil && strings.Contains(c.Error, want)
				}
				return rep.held("kafka_denied") || rep.held("dead_letters_unavailable")
			})
		})
	}
}

// refuses expects the broker to refuse the user what no ACL allows.
func (s *secured) refuses(t *testing.T) {
	t.Helper()
	login := plain.Auth{User: "sluice", Pass: "secret"}.AsMechanism()
	c := client(t, s.kafka.Addrs["SASL"], kgo.SASL(login))
	admin := kadm.NewClient(c)
	for what, do := range map[string]func() error{
		"produce to the source topic": func() error {
			return c.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr()
		},
		"create another topic": func() error {
			_, err := admin.CreateTopic(t.Context(), 1, 1, nil, "new")
			return err
		},
		"delete the source topic": func() error {
			r, err := admin.DeleteTopic(t.Context(), "orders")
			return errors.Join(err, r.Err)
		},
		"delete the dead-letter topic": func() error {
			r, err := admin.DeleteTopic(t.Context(), "orders-dlq")
			return errors.Join(err, r.Err)
		},
		"describe another topic": func() error {
			listed, err := admin.ListEndOffsets(t.Context(), "others")
			return errors.Join(err, listed.Error())
		},
		"change the settings of the source topic": func() error {
			r, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "retention.ms", Value: new("1")}}, "orders")
			if err == nil {
				_, err = r.On("orders", func(r *kadm.AlterConfigsResponse) error { return r.Err })
			}
			return err
		},
		"see the committed offsets of another group": func() error {
			_, err := admin.FetchOffsets(t.Context(), "others")
			return err
		},
		"delete the group": func() error {
			r, err := admin.DeleteGroup(t.Context(), "orders")
			return errors.Join(err, r.Err)
		},
		"read the ACLs": func() error {
			results, err := admin.DescribeACLs(t.Context(), acls(t, rightsOf(t)[0]))
			for _, r := range results {
				err = errors.Join(err, r.Err)
			}
			return err
		},
	} {
		err := do()
		if !slices.ContainsFunc([]error{kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed}, func(e error) bool {
			return errors.Is(err, e)
		}) && !isAuthError(err) {
			t.Errorf("%s: %v, want it to be refused", what, err)
		}
	}
}

// isAuthError reports whether an error of kadm is a refusal of one of its requests.
func isAuthError(err error) bool {
	var auth *kadm.AuthError
	return errors.As(err, &auth)
}
