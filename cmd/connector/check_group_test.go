package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestCheckForeignGroup has a consumer of another program in the group. The command check must name it, and a connector
// that fails to join must log why.
func TestCheckForeignGroup(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 2)
	l.Produce("orders", 1, 0)
	other, err := kgo.NewClient(kgo.SeedBrokers(l.Broker.ListenAddrs()...), kgo.ConsumerGroup("p"), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ClientID("nightly-report"), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	other.PollFetches(t.Context())
	out, _ := l.runs(1, "check")
	if !regexp.MustCompile(`(?m)^problem +group +p +stable with assignor cooperative-sticky, which no connector can join: 1 member: nightly-report at [^ ]+ \(1 topic\)$`).MatchString(out) ||
		!strings.Contains(out, "to do: another consumer with other assignors is in this group; give this pipeline a group of its own (kafka.group)") {
		t.Error(out)
	}
	l.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.InconsistentGroupProtocol, Count: -1}) // the response of Kafka in this case
	const why = "joining the group p is refused: another consumer with other assignors is in this group; give this pipeline a group of its own (kafka.group)"
	m := l.start()
	l.Await("the member says why", func() bool {
		for _, h := range m.Report().Holds {
			if strings.Contains(h.Detail, why) {
				return true
			}
		}
		return false
	})
}
