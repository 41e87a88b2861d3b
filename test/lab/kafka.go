package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka is one broker that is also a controller: alone, or one of a [KafkaCluster].
type Kafka struct {
	ID   int32
	Addr string // bootstrap address
	// Proxied is the bootstrap address of a second listener. To its clients the broker gives the address
	// KafkaOptions.Advertise, at which a proxy listens. So they connect through the proxy, and a test can cut all of
	// their connections.
	Proxied string
	Dir     string // data and log
	// Addrs has the address of each listener in KafkaOptions.Listeners by the name of the listener.
	Addrs map[string]string

	libs  string
	heap  []string // options of the Java virtual machine
	proc  *Process
	admin *kadm.Client
}

// These are the versions of Kafka in the lab: the newest, and the last one before 4.0.
const (
	KafkaNewest = "4.3.1"
	KafkaOlder  = "3.9.1"
)

// KafkaOptions configure a broker.
type KafkaOptions struct {
	Dir     string // an empty folder for its data
	Version string // KafkaNewest if empty
	// Advertise is the address in the second listener's metadata. If it is "", the broker has no second listener.
	Advertise string
	// Listeners are additional listeners. They cannot be combined with Advertise.
	Listeners []Listener
	// Settings are additional lines of the broker's configuration.
	Settings []string
	// Scram are users in the storage tool's syntax: SCRAM-SHA-256=[name=…,password=…].
	Scram []string
}

// StartKafka formats a new cluster and starts its broker. The caller must call Stop or Kill.
func StartKafka(ctx context.Context, o KafkaOptions) (*Kafka, error) {
	libs, err := Install(ctx, "kafka-"+cmp.Or(o.Version, KafkaNewest))
	if err != nil {
		return nil, err
	}
	k := &Kafka{
		ID: 1, Dir: o.Dir, libs: libs,
		heap: []string{"-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=50"},
	}
	controller, err := k.listen(o.Advertise != "")
	if err != nil {
		return nil, err
	}
	further, err := k.further(o.Listeners, controller)
	if err != nil {
		return nil, err
	}
	if err := k.configure(controller, o.Advertise, map[int32]string{1: controller}, append(append(further, singleBroker...), o.Settings...)); err != nil {
		return nil, err
	}
	if err := k.format(ctx, o.Scram...); err != nil {
		return nil, err
	}
	if err := k.Start(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

// format writes the initial files of the node's cluster into its data folder, SCRAM users included.
func (k *Kafka) format(ctx context.Context, users ...string) error {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	id[0] &= 0x7f        // a name that starts with "-" would be an option
	args := []string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dlog4j2.configurationFile=" + k.log4j(), "-cp", k.libs + "/*", "kafka.tools.StorageTool",
		"format", "-t", base64.RawURLEncoding.EncodeToString(id), "-c", k.properties(),
	}
	for _, user := range users {
		args = append(args, "--add-scram", user)
	}
	format := exec.CommandContext(ctx, "java", args...)
	if out, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("format Kafka's storage: %w: %s", err, out)
	}
	return nil
}

func (k *Kafka) properties() string { return filepath.Join(k.Dir, "server.properties") }

func (k *Kafka) log4j() string { return "file:" + filepath.Join(k.Dir, "log4j2.properties") }

// listen chooses free addresses for the node's listeners and returns the address of the controller.
func (k *Kafka) listen(proxied bool) (controller string, err error) {
	if k.Addr, err = FreeAddr(); err != nil {
		return "", err
	}
	if proxied {
		if k.Proxied, err = FreeAddr(); err != nil {
			return "", err
		}
	}
	return FreeAddr()
}

// singleBroker are the settings of the only broker of a cluster.
var singleBroker = []string{
	"offsets.topic.replication.factor=1",
	"transaction.state.log.replication.factor=1",
	"share.coordinator.state.topic.replication.factor=1",
}

// configure writes server.properties and log4j2.properties. voters are the addresses of all controllers, by node id;
// the lines more are added to server.properties.
func (k *Kafka) configure(controller, advertise string, voters map[int32]string, more []string) error {
	listeners := "DIRECT://" + k.Addr + ",CONTROLLER://" + controller
	advertised := "DIRECT://" + k.Addr
	if advertise != "" {
		listeners += ",PROXIED://" + k.Proxied
		advertised += ",PROXIED://" + advertise
	}
	quorum := make([]string, 0, len(voters))
	for id, addr := range voters {
		quorum = append(quorum, fmt.Sprintf("%d@%s", id, addr))
	}
	lines := []string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", k.ID),
		"controller.quorum.voters=" + strings.Join(quorum, ","),
		"listeners=" + listeners,
		"advertised.listeners=" + advertised,
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=DIRECT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name=DIRECT",
		"log.dirs=" + filepath.Join(k.Dir, "logs"),
		"offsets.topic.num.partitions=4",
		"transaction.state.log.num.partitions=4",
		"transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
		"group.min.session.timeout.ms=1000",
		"auto.create.topics.enable=false",
		"num.network.threads=2",
		"num.io.threads=4",
		"log.retention.ms=-1",
		"log.retention.check.interval.ms=1000",
		"file.delete.delay.ms=100",
		"log.cleaner.dedupe.buffer.size=33554432",
	}
	lines = append(lines, more...)
	root, err := Root()
	if err != nil {
		return err
	}
	log4j, err := os.ReadFile(filepath.Join(root, "test", "lab", "kafka", "log4j2.properties"))
	if err != nil {
		return fmt.Errorf("configure Kafka: %w", err)
	}
	for name, text := range map[string]string{
		"server.properties": strings.Join(lines, "\n") + "\n",
		"log4j2.properties": string(log4j),
	} {
		if err := os.WriteFile(filepath.Join(k.Dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("configure Kafka: %w", err)
		}
	}
	return nil
}

// Start starts the broker on the data in its folder. It returns when the broker accepts requests.
func (k *Kafka) Start(ctx context.Context) error {
	if err := k.launch(); err != nil {
		return err
	}
	return k.await(ctx)
}

// launch starts the broker's process.
func (k *Kafka) launch() (err error) {
	log := filepath.Join(k.Dir, "kafka-"+time.Now().Format("150405.000")+".log")
	argv := append([]string{"java"}, k.heap...)
	argv = append(argv, "-Djava.awt.headless=true", "-Dlog4j2.configurationFile="+k.log4j(),
		"-cp", k.libs+"/*", "kafka.Kafka", k.properties())
	k.proc, err = StartProcess(fmt.Sprintf("Kafka broker %d", k.ID), log, nil, argv...)
	return err
}

// await returns when a launched broker accepts requests.
func (k *Kafka) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	err := Until(ctx, func() (bool, error) {
		if !k.proc.Running() {
			return false, errors.New("it ended")
		}
		text, err := os.ReadFile(k.proc.Log)
		// The broker writes this line when it is unfenced and its listeners accept.
		if err != nil || !strings.Contains(string(text), "Kafka Server started") {
			return false, err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", k.Addr)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return true, conn.Close()
	})
	if err != nil {
		tail := k.proc.Tail()
		return errors.Join(fmt.Errorf("start Kafka: %w: %s", err, tail), k.proc.Kill())
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr))
	if err != nil {
		return errors.Join(fmt.Errorf("connect to Kafka: %w", err), k.proc.Kill())
	}
	k.admin = kadm.NewClient(client)
	return nil
}

// Stop ends the broker in an orderly way. The caller may Start it again.
func (k *Kafka) Stop() error {
	k.closeAdmin()
	return k.proc.Stop(30 * time.Second)
}

// Kill ends the broker at once. The caller may Start it again; the broker then recovers its log.
func (k *Kafka) Kill() error {
	k.closeAdmin()
	return k.proc.Kill()
}

// Pause suspends the broker's process until Resume: its ports stay open, but it does not answer.
func (k *Kafka) Pause() error { return k.proc.Signal(syscall.SIGSTOP) }

// Resume lets a paused broker continue.
func (k *Kafka) Resume() error { return k.proc.Signal(syscall.SIGCONT) }

func (k *Kafka) closeAdmin() {
	if k.admin != nil {
		k.admin.Close()
		k.admin = nil
	}
}

// Pid returns the broker's process id.
func (k *Kafka) Pid() int { return k.proc.Pid() }

// Groups runs Kafka's own kafka-consumer-groups.sh and returns what it printed.
func (k *Kafka) Groups(ctx context.Context, args ...string) (string, error) {
	command := append(k.tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"), "--bootstrap-server", k.Addr)
	command = append(command, args...)
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kafka-consumer-groups: %w: %s", err, out)
	}
	return string(out), nil
}

// WriteTool writes a shell script that runs one of Kafka's own tools, by its class, as the scripts of Kafka's archive do.
func (k *Kafka) WriteTool(path, class string) error {
	script := "#!/bin/sh\nexec '" + strings.Join(k.tool(class), "' '") + "' \"$@\"\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		return fmt.Errorf("write a script: %w", err)
	}
	return nil
}

// tool returns the command that runs one of Kafka's own tools.
func (k *Kafka) tool(class string) []string {
	return []string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=" + k.log4j(), "-cp", k.libs + "/*", class}
}

// CreateTopic creates a topic without retention and waits until each partition has a leader.
func (k *Kafka) CreateTopic(ctx context.Context, topic string, partitions int32, configs map[string]string) error {
	return createTopic(ctx, k.admin, topic, partitions, 1, configs)
}

func createTopic(ctx context.Context, admin *kadm.Client, topic string, partitions int32, replicas int16,
	configs map[string]string,
) error {
	all := map[string]*string{"retention.ms": new("-1")}
	for key, value := range configs {
		all[key] = &value
	}
	resp, err := admin.CreateTopic(ctx, partitions, replicas, all, topic)
	if err = errors.Join(err, resp.Err); err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return Until(ctx, func() (bool, error) {
		ends, err := admin.ListEndOffsets(ctx, topic)
		return err == nil && ends.Error() == nil && len(ends[topic]) == int(partitions), nil
	})
}

// AddPartitions gives a topic more partitions, n in all, and waits until each has a leader.
func (k *Kafka) AddPartitions(ctx context.Context, topic string, n int32) error {
	resp, err := k.admin.UpdatePartitions(ctx, int(n), topic)
	if err = errors.Join(err, resp.Error()); err != nil {
		return fmt.Errorf("add partitions to %s: %w", topic, err)
	}
	return Until(ctx, func() (bool, error) {
		ends, err := k.admin.ListEndOffsets(ctx, topic)
		return err == nil && ends.Error() == nil && len(ends[topic]) == int(n), nil
	})
}

// DeleteTopic deletes a topic and waits until it is gone from the cluster's metadata.
func (k *Kafka) DeleteTopic(ctx context.Context, topic string) error {
	resp, err := k.admin.DeleteTopics(ctx, topic)
	if err = errors.Join(err, resp.Error()); err != nil {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	return Until(ctx, func() (bool, error) {
		topics, err := k.admin.ListTopics(ctx, topic)
		return err == nil && !topics.Has(topic), nil
	})
}

// DeleteRecords moves the log start of a partition: the records before offset are gone.
func (k *Kafka) DeleteRecords(ctx context.Context, topic string, partition int32, offset int64) error {
	offsets := make(kadm.Offsets)
	offsets.AddOffset(topic, partition, offset, -1)
	resp, err := k.admin.DeleteRecords(ctx, offsets)
	if err = errors.Join(err, resp.Error()); err != nil {
		return fmt.Errorf("delete records of %s/%d: %w", topic, partition, err)
	}
	return nil
}

// Segments returns the log segment files of a partition, oldest first.
func (k *Kafka) Segments(topic string, partition int32) ([]string, error) {
	return filepath.Glob(filepath.Join(k.Dir, "logs", fmt.Sprintf("%s-%d", topic, partition), "*.log"))
}
