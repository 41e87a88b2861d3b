package lab

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// KafkaCluster is several brokers, each also a controller: a cluster of three survives the loss of any one. Each broker
// has its own rack, "r" and its id. A client that names a rack reads from the replica there (KIP-392).
type KafkaCluster struct {
	Brokers []*Kafka // Brokers[i] has the id i+1

	client *kgo.Client
	admin  *kadm.Client
}

// KafkaClusterOptions configure a cluster.
type KafkaClusterOptions struct {
	Dir     string // an empty folder for its data
	Version string // KafkaNewest if empty
	Brokers int    // 3 if zero
}

// clusterMembers are the settings of a broker that belongs to a cluster of several. After four seconds without a
// heartbeat the cluster takes the leadership of all partitions from a broker.
var clusterMembers = []string{
	"offsets.topic.replication.factor=3",
	"transaction.state.log.replication.factor=3",
	"share.coordinator.state.topic.replication.factor=3",
	"replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
	"broker.heartbeat.interval.ms=500",
	"broker.session.timeout.ms=4000",
	"replica.lag.time.max.ms=4000",
	"replica.fetch.wait.max.ms=100",
	"auto.leader.rebalance.enable=false",
	"unclean.leader.election.enable=false",
}

// StartKafkaCluster formats a new cluster and starts its brokers. The caller must call Stop.
func StartKafkaCluster(ctx context.Context, o KafkaClusterOptions) (c *KafkaCluster, err error) {
	libs, err := Install(ctx, "kafka-"+cmp.Or(o.Version, KafkaNewest))
	if err != nil {
		return nil, err
	}
	c = &KafkaCluster{}
	voters := make(map[int32]string)
	for i := range cmp.Or(o.Brokers, 3) {
		k := &Kafka{
			ID: int32(i) + 1, Dir: filepath.Join(o.Dir, fmt.Sprintf("broker-%d", i+1)), libs: libs,
			heap: []string{"-Xms64m", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"},
		}
		if err := os.MkdirAll(k.Dir, 0o755); err != nil {
			return nil, fmt.Errorf("start Kafka: %w", err)
		}
		if voters[k.ID], err = k.listen(false); err != nil {
			return nil, err
		}
		c.Brokers = append(c.Brokers, k)
	}
	for i, k := range c.Brokers {
		if err := k.configure(voters[k.ID], "", voters, append(slices.Clone(clusterMembers), "broker.rack="+k.Rack())); err != nil {
			return nil, err
		}
		if i == 0 {
			err = k.format(ctx)
		} else {
			err = k.formatAs(c.Brokers[0])
		}
		if err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	for _, k := range c.Brokers {
		if err := k.launch(); err != nil {
			return nil, err
		}
	}
	for _, k := range c.Brokers {
		if err := k.await(ctx); err != nil {
			return nil, err
		}
	}
	c.client, err = kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.DialTimeout(2*time.Second), kgo.RequestTimeoutOverhead(5*time.Second), kgo.RetryTimeout(time.Minute))
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	c.admin = kadm.NewClient(c.client)
	return c, nil
}

// formatAs creates the data folder of a further node in first's cluster. It writes what Kafka's own tool writes, but
// needs no Java process.
func (k *Kafka) formatAs(first *Kafka) error {
	data := filepath.Join(k.Dir, "logs")
	if err := os.CopyFS(data, os.DirFS(filepath.Join(first.Dir, "logs"))); err != nil {
		return fmt.Errorf("format Kafka's storage: %w", err)
	}
	path := filepath.Join(data, "meta.properties")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("format Kafka's storage: %w", err)
	}
	directory := make([]byte, 16)
	_, _ = rand.Read(directory) // crypto/rand never fails
	var out strings.Builder
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		switch key, _, _ := strings.Cut(lines.Text(), "="); key {
		case "node.id":
			fmt.Fprintf(&out, "node.id=%d\n", k.ID)
		case "directory.id":
			fmt.Fprintf(&out, "directory.id=%s\n", base64.RawURLEncoding.EncodeToString(directory))
		default:
			fmt.Fprintln(&out, lines.Text())
		}
	}
	if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
		return fmt.Errorf("format Kafka's storage: %w", err)
	}
	return nil
}

// Rack returns the rack of a broker in a cluster.
func (k *Kafka) Rack() string { return fmt.Sprintf("r%d", k.ID) }

// Running reports whether the broker's process runs, paused or not.
func (k *Kafka) Running() bool { return k.proc != nil && k.proc.Running() }

// Addrs returns the bootstrap addresses of all brokers.
func (c *KafkaCluster) Addrs() (addrs []string) {
	for _, k := range c.Brokers {
		addrs = append(addrs, k.Addr)
	}
	return addrs
}

// Stop kills all brokers. A controlled shutdown would need other brokers that still run.
func (c *KafkaCluster) Stop() error {
	if c.client != nil {
		c.client.Close()
	}
	var errs []error
	for _, k := range c.Brokers {
		if k.Running() {
			errs = append(errs, k.Kill())
		}
	}
	return errors.Join(errs...)
}

// Broker returns a broker by its id.
func (c *KafkaCluster) Broker(id int32) *Kafka { return c.Brokers[id-1] }

// CreateTopic creates a topic without retention, with a replica on every broker, and waits until each partition has a
// leader.
func (c *KafkaCluster) CreateTopic(ctx context.Context, topic string, partitions int32, configs map[string]string) error {
	return createTopic(ctx, c.admin, topic, partitions, int16(len(c.Brokers)), configs)
}

// Partition returns the cluster's metadata of a partition.
func (c *KafkaCluster) Partition(ctx context.Context, topic string, partition int32) (kadm.PartitionDetail, error) {
	m, err := c.admin.Metadata(ctx, topic)
	if err != nil {
		return kadm.PartitionDetail{}, fmt.Errorf("metadata of %s: %w", topic, err)
	}
	p, ok := m.Topics[topic].Partitions[partition]
	if !ok {
		return kadm.PartitionDetail{}, fmt.Errorf("metadata of %s: no partition %d", topic, partition)
	}
	return p, nil
}

// End returns the offset after the last record of a partition.
func (c *KafkaCluster) End(ctx context.Context, topic string, partition int32) (int64, error) {
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return 0, fmt.Errorf("ends of %s: %w", topic, err)
	}
	return ends[topic][partition].Offset, nil
}

// Place sets the replicas of a partition, with the first one as leader, and waits until all are in sync and it leads.
func (c *KafkaCluster) Place(ctx context.Context, topic string, partition int32, replicas ...int32) error {
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, partition, replicas)
	resp, err := c.admin.AlterPartitionAssignments(ctx, req)
	if err = errors.Join(err, resp.Error()); err != nil {
		return fmt.Errorf("place %s/%d on %v: %w", topic, partition, replicas, err)
	}
	return patiently(ctx, func(ctx context.Context) (bool, error) {
		p, err := c.Partition(ctx, topic, partition)
		if err != nil || !slices.Equal(p.Replicas, replicas) || len(p.ISR) != len(replicas) {
			return false, nil //nolint:nilerr // not yet
		}
		if p.Leader == replicas[0] {
			return true, nil
		}
		set := make(kadm.TopicsSet)
		set.Add(topic, partition)
		_, err = c.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		return false, err
	})
}

// ElectUnclean makes a live replica the leader of a partition although it lacks acknowledged records.
func (c *KafkaCluster) ElectUnclean(ctx context.Context, topic string, partition, leader int32) error {
	set := make(kadm.TopicsSet)
	set.Add(topic, partition)
	err := patiently(ctx, func(ctx context.Context) (bool, error) {
		_, err := c.admin.ElectLeaders(ctx, kadm.ElectLiveReplica, set)
		if err != nil {
			return false, err
		}
		p, err := c.Partition(ctx, topic, partition) // the metadata may name the old leader until the cluster misses it
		return err == nil && p.Leader == leader, nil
	})
	if err != nil {
		return fmt.Errorf("elect broker %d as leader of %s/%d: %w", leader, topic, partition, err)
	}
	return nil
}

// patiently calls check until it returns true, for at most two minutes.
func patiently(ctx context.Context, check func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return Until(ctx, func() (bool, error) { return check(ctx) })
}

// Coordinator returns the broker that coordinates a consumer group.
func (c *KafkaCluster) Coordinator(ctx context.Context, group string) (*Kafka, error) {
	found := c.admin.FindGroupCoordinators(ctx, group)[group]
	if found.Err != nil {
		return nil, fmt.Errorf("find the coordinator of group %s: %w", group, found.Err)
	}
	return c.Broker(found.NodeID), nil
}

// InSync waits until every replica of a topic is in sync.
func (c *KafkaCluster) InSync(ctx context.Context, topic string) error {
	return patiently(ctx, func(ctx context.Context) (bool, error) {
		m, err := c.admin.Metadata(ctx, topic)
		if err != nil || len(m.Topics[topic].Partitions) == 0 {
			return false, nil //nolint:nilerr // not yet
		}
		for _, p := range m.Topics[topic].Partitions {
			if p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
				return false, nil
			}
		}
		return true, nil
	})
}
