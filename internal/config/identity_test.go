package config

import (
	"strings"
	"testing"
	"time"

	"sluice/idempotency"
)

func identityConfig(topics string) string {
	return "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///data}\nmemory: {limit: 512MiB}\n" +
		"defaults: {schema: \"event_id string not null, n int, o struct<id:bigint>, tags array<string>\"}\n" + topics
}

func TestIdentityOfTopics(t *testing.T) {
	for text, want := range map[string]string{
		"topics: {orders: {}}":                                     "none",
		"topics: {orders: {identity: {by: 'field:event_id'}}}":     "field:event_id",
		"topics: {orders: {identity: {by: 'field:o.id'}}}":         "field:o.id",
		"topics: {orders: {identity: {by: 'header:event-id'}}}":    "header:event-id",
		"topics: {orders: {identity: {by: content, window: 36h}}}": "content",
	} {
		c := mustLoad(t, write(t, identityConfig(text)), nil)
		_, topic := onlyTopic(t, c)
		id := topic.ProducerIdentity()
		if id.String() != want {
			t.Errorf("%s: %s", text, id)
		}
		columns, err := topic.Columns()
		if err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(columns.DDL(), "_kafka_fingerprint"); has != id.Stored() {
			t.Errorf("%s: the table has a column of fingerprints: %v", text, has)
		}
		if share := c.Budget.Fingerprints; (share > 0) != (want != "none") {
			t.Errorf("%s: %d bytes for fingerprints", text, share)
		}
	}
}

func TestIdentity_Invalid(t *testing.T) {
	for text, want := range map[string]string{
		"topics: {orders: {identity: {by: event_id}}}":                                                        `"event_id" is no identity: use none, field:<path>, header:<name> or content`,
		"topics: {orders: {identity: {by: 'field:evnt_id'}}}":                                                 "needs column evnt_id, which the table does not have",
		"topics: {orders: {identity: {by: 'field:tags'}}}":                                                    "tags is array",
		"topics: {orders: {identity: {by: 'field:o'}}}":                                                       "o is struct",
		"topics: {orders: {identity: {by: 'field:n.id'}}}":                                                    "leads through column n, which is int and has no fields",
		"topics: {orders: {identity: {by: 'field:n', window: 300h}}}":                                         "288h",
		"topics: {orders: {identity: {by: 'field:n', rate: 5000}}}":                                           "the fingerprints of the declared rates take 10299MiB",
		"topics: {orders: {identity: {by: 'field:n', rate: 150}}, b: {identity: {by: 'field:n', rate: 100}}}": "give the process 643MiB",
		"topics: {orders: {}}\nfingerprints: {store: postgres}":                                               "postgres needs fingerprints.url_file",
		"topics: {orders: {}}\nfingerprints: {url_file: x}":                                                   "has no effect with store: memory",
		"topics: {orders: {}}\nfingerprints: {store: postgres, url_file: x}":                                  "fingerprints.url_file: ",
		"topics: {orders: {}}\nfingerprints: {store: redis}":                                                  "write memory or postgres",
		"topics: {orders: {table: t, identity: {by: 'field:n'}}, b: {table: t}}":                              "must agree on identity.by",
		"topics: {orders: {identity: {by: 'field:event_id'}, partition_by: [event_id]}}":                      "choose another identity or other partition columns\n",
	} {
		c, problems := Load(write(t, identityConfig(text)), func(string) (string, bool) { return "", false })
		all := ""
		for _, p := range problems {
			all += p.String() + "\n"
		}
		if c != nil || !strings.Contains(all, want) {
			t.Errorf("%s:\n%swant %s", text, all, want)
		}
	}
}

func TestFingerprintMemory_DeclaredRates(t *testing.T) {
	at := func(topics string) Budget {
		t.Helper()
		return mustLoad(t, write(t, identityConfig(topics)), nil).Budget
	}
	none, plain := at("topics: {orders: {}}"), at("topics: {orders: {identity: {by: content}}}")
	rated := at("topics: {orders: {identity: {by: content, rate: 100}}, b: {identity: {by: content, rate: 50}}, c: {identity: {rate: 1000000}}}")
	if want := none.Limit / 5; plain.Fingerprints != want {
		t.Errorf("%d bytes without a rate, want %d", plain.Fingerprints, want)
	}
	if want := idempotency.SizeOf(150, 24*time.Hour); rated.Fingerprints != want {
		t.Errorf("%d bytes for 150 a second, want %d", rated.Fingerprints, want)
	}
	for _, b := range []Budget{plain, rated} {
		if b.fetch >= none.fetch || b.Fingerprints+b.fetch+b.batch > b.Limit*7/10+b.Fingerprints*3/10 {
			t.Errorf("%+v", b)
		}
	}
}
