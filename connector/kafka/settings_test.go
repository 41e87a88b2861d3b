package kafka

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/classify"
)

func TestTopicSettings(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	franz, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer franz.Close()
	create := func(name string, settings map[string]string) {
		t.Helper()
		configs := map[string]*string{}
		for k, v := range settings {
			configs[k] = &v
		}
		if _, err := kadm.NewClient(franz).CreateTopic(t.Context(), 1, 1, configs, name); err != nil {
			t.Fatal(err)
		}
	}
	create("week", map[string]string{"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "1000000", "max.message.bytes": "2000000"})
	create("ever", map[string]string{"cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": "1048588"})
	create("both", map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "9223372036854775807", "retention.bytes": "-1", "max.message.bytes": "1048588"})

	client, err := NewClient(Config{Brokers: cluster.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, want := range map[string]TopicSettings{
		"week": {Delete: true, RetentionTime: 7 * 24 * time.Hour, RetentionBytes: 1_000_000, MaxBatch: 2_000_000},
		"ever": {Compact: true, RetentionTime: -1, RetentionBytes: -1, MaxBatch: 1_048_588},
		"both": {Delete: true, Compact: true, RetentionBytes: -1, MaxBatch: 1_048_588},
	} {
		got, err := client.TopicSettings(t.Context(), name)
		if name == "both" { // the longest time.Duration
			want.RetentionTime = got.RetentionTime
			if got.RetentionTime < 200*365*24*time.Hour {
				t.Errorf("both: retention %v", got.RetentionTime)
			}
		}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
	}
	if _, err := client.TopicSettings(t.Context(), "nowhere"); err == nil || classify.Of(err) == classify.Fatal {
		t.Errorf("a topic that is not there: %v", err)
	}
}
