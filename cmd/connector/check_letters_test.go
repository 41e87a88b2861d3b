package main

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"

	"sluice/connector"
)

// TestCheckLetters: check reports a dead-letter topic as a problem if it is missing or compacted, warns if it is kept
// for too short a time, and reports a correct one as ok.
func TestCheckLetters(t *testing.T) {
	b := newBroker(t)
	w := newTable(t, b.topic, b.addresses...)
	rewrite(t, w.config, "topics: {orders: {}}", "topics: {orders: {bad_records: dead_letter, dead_letters: {create: false, archive: none}}}")
	lines, _ := checkFound(t, 1, w.config)
	hasLine(t, lines, "problem dead letters orders-dlq: ", "does not exist: create it with cleanup.policy=delete")

	admin := kadm.NewClient(b.client)
	set := func(name, value string) {
		t.Helper()
		if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, "orders-dlq"); err != nil {
			t.Fatal(err)
		}
	}
	compact, limit := "compact", "2097152"
	if _, err := admin.CreateTopic(t.Context(), 2, 1, map[string]*string{"cleanup.policy": &compact, "max.message.bytes": &limit}, "orders-dlq"); err != nil {
		t.Fatal(err)
	}
	lines, _ = checkFound(t, 1, w.config)
	hasLine(t, lines, "problem dead letters orders-dlq: ", "cleanup.policy=compact")
	set("cleanup.policy", "delete")
	set("retention.ms", "86400000")
	lines, _ = checkFound(t, 0, w.config)
	hasLine(t, lines, "warning dead letters orders-dlq: ", "dead letters are kept for 1d; the configuration wants 30d")
	set("retention.ms", "-1")
	lines, _ = checkFound(t, 0, w.config)
	hasLine(t, lines, "ok dead letters orders-dlq: ", "2 partitions, kept without a limit, dead letters of up to 2MiB")

	rewrite(t, w.config, "create: false", "create: true")
	hasLine(t, lines, "ok dead letters orders-dlq: ", "")
	rewrite(t, w.config, "bad_records: dead_letter", "bad_records: hold")
	for _, line := range func() []string { lines, _ := checkFound(t, 0, w.config); return lines }() {
		if len(line) > 15 && line[3:15] == "dead letters" {
			t.Errorf("with bad_records: hold: %s", line)
		}
	}
}

// TestCheckLettersDenied expects check to report missing permissions for a dead-letter topic before there is a dead
// letter.
func TestCheckLettersDenied(t *testing.T) {
	topic := func(name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	rights := []kfake.ACL{
		{Resource: kmsg.ACLResourceTypeGroup, Name: "p", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationAll, Allow: true},
		topic("orders", kmsg.ACLOperationRead), topic("orders", kmsg.ACLOperationDescribeConfigs),
		topic("readable", kmsg.ACLOperationDescribe), topic("readable", kmsg.ACLOperationDescribeConfigs),
		topic("writable", kmsg.ACLOperationWrite),
		topic("new", kmsg.ACLOperationCreate), topic("new", kmsg.ACLOperationDescribe),
		topic("mine", kmsg.ACLOperationDescribe),
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "readable", "writable", "hidden"), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "sluice", "secret", rights...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	root, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.SASL(saslplain.Auth{User: "root", Pass: "root"}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	(&broker{t: t, client: root}).commit("orders", 0, 0) // unlike Kafka, this broker denies requests about a group that does not exist
	for name, want := range map[string][2]string{
		"readable": {"problem dead letters readable: ", "grant Write and Describe on it"},
		"hidden":   {"problem dead letters hidden: ", "refused"},
		"writable": {"warning dead letters writable: ", "is refused"},
		"new":      {"ok dead letters new: ", "created with the first dead letter"},
		"mine":     {"problem dead letters mine: ", "grant Create on it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTable(t, connector.Topic{}, cluster.ListenAddrs()[0])
			rewrite(t, w.config, "session: 10s}", "session: 10s, sasl: {mechanism: plain, username: sluice, password: secret, insecure_plaintext: true}}")
			rewrite(t, w.config, "topics: {orders: {}}", "topics: {orders: {bad_records: dead_letter, dead_letters: {archive: none, topic: "+name+"}}}")
			lines, _ := checkFound(t, 1, w.config) // exit code 1, because there is a committed offset but no position
			hasLine(t, lines, want[0], want[1])
		})
	}
}
