package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/connector/kafka"
	"sluice/connector/kafka/dial"
	"sluice/internal/config"
	"sluice/internal/lookup"
	"sluice/internal/open"
	"sluice/reliability"
	"sluice/reliability/hold"
)

const (
	// soon is how long before its end a certificate gets a warning.
	soon = 14 * 24 * time.Hour
	// shortRetention is the retention below which a topic gets a warning: records must survive an outage over a
	// weekend.
	shortRetention = 3 * 24 * time.Hour
)

// explainError splits the text of an error into what is wrong and a hint what to do about it.
func explainError(err error) (text, hint string) {
	if e, ok := errors.AsType[*dial.Error](err); ok {
		return e.What(), e.Hint()
	}
	if held, ok := errors.AsType[*hold.Error](err); ok {
		return held.Why(), instruction(held.Reason.EndsBy())
	}
	return err.Error(), ""
}

// failed adds a finding with the status failed for an error.
func (k *checks) failed(area, subject string, err error) {
	text, hint := explainError(err)
	k.add(StatusFailed, area, subject, hint, "%s", text)
}

// kafka checks each bootstrap address and each broker of the cluster. If no broker responds, the returned queries are
// nil. The caller calls end after its last request.
func (k *checks) kafka(ctx context.Context) (queries *kafkaQueries, end func()) {
	end = func() {}
	client, err := open.Kafka(k.config, nil, nil, nil)
	if err != nil {
		k.failed("broker", strings.Join(k.config.Kafka.Brokers, ", "), err)
		return nil, end
	}
	defer client.Close()
	if !k.bootstrap(ctx, client) {
		return nil, end
	}
	if queries, err = newKafkaQueries(ctx, k.config); err != nil {
		k.failed("broker", "cluster", err)
		return nil, end
	}
	k.cluster(ctx, queries)
	return queries, queries.close
}

// retrying returns a function that repeats a request to Kafka after transient failures, until ctx ends.
func (k *checks) retrying(ctx context.Context) func(func(context.Context) error) error {
	return lookup.Patience(ctx, reliability.NewGuard("kafka", k.config.Guard(), slog.New(slog.DiscardHandler), nil))
}

// bootstrap probes the configured addresses and reports whether at least one responds as a broker.
func (k *checks) bootstrap(ctx context.Context, client *kafka.Client) (usable bool) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	addresses := k.config.Kafka.Brokers
	probed, failures := make([]kafka.Probed, len(addresses)), make([]error, len(addresses))
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() { probed[i], failures[i] = client.Probe(ctx, address) })
	}
	all.Wait()
	cluster := ""
	for i, address := range addresses {
		p := probed[i]
		if failures[i] != nil {
			k.failed("broker", address, failures[i])
			continue
		}
		usable = true
		k.add(StatusOK, "broker", address, "", "cluster %s, %s", p.Cluster, k.describeConnection(p))
		if cluster == "" {
			cluster = p.Cluster
		}
		if p.Cluster != cluster {
			k.add(StatusProblem, "broker", address, "name brokers of one cluster in kafka.brokers", "belongs to cluster %s, others to %s", p.Cluster, cluster)
		}
		k.warnExpiry(address, "the broker's certificate", p.CertificateEnds, "renew it")
		k.warnExpiry(address, "our certificate", p.OurCertificateEnds, "renew kafka.tls.cert_file; nothing needs a restart")
	}
	return usable
}

// describeConnection returns how a connection is protected and authenticated.
func (k *checks) describeConnection(p kafka.Probed) string {
	text := "plaintext"
	if p.TLS != "" {
		text = p.TLS
	}
	switch s := k.config.Kafka.SASL; {
	case s.Mechanism == "none":
	case s.Username != "":
		text += ", " + s.Mechanism + " as " + s.Username
	default:
		text += ", " + s.Mechanism
	}
	if p.Session > 0 {
		text += ", sessions of " + config.FormatDuration(p.Session)
	}
	return text
}

// warnExpiry adds a warning if a certificate ends within the time soon. whose says whose certificate it is.
func (k *checks) warnExpiry(address, whose string, at time.Time, hint string) {
	if left := time.Until(at); !at.IsZero() && left < soon {
		k.add(StatusWarning, "broker", address, hint, "%s ends on %s", whose, at.UTC().Format(time.RFC3339))
	}
}

// cluster checks the brokers at the addresses that the cluster advertises, because members fetch from these addresses
// and not from the bootstrap addresses.
func (k *checks) cluster(ctx context.Context, queries *kafkaQueries) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	brokers, err := queries.client.Brokers(ctx)
	if err != nil {
		k.failed("broker", "cluster", err)
		return
	}
	for _, b := range brokers {
		subject := fmt.Sprintf("%s (%d)", b.Address(), b.ID)
		if b.Err != nil {
			text, hint := explainError(b.Err)
			k.add(StatusFailed, "broker", subject, strings.TrimPrefix(hint+"; the cluster names this address to clients (advertised.listeners)", "; "), "%s", text)
			continue
		}
		if b.Lost != "" {
			k.add(StatusWarning, "broker", subject, "Kafka 3.1 and newer lose nothing", "read by Fetch v%d: %s", b.Fetch, b.Lost)
			continue
		}
		k.add(StatusOK, "broker", subject, "", "read by Fetch v%d", b.Fetch)
	}
	if rack := k.config.Kafka.Rack; rack != "" && !slices.ContainsFunc(brokers, func(b kafka.Broker) bool { return b.Rack == rack }) {
		k.add(StatusWarning, "broker", "kafka.rack", "write the broker.rack of a broker, or nothing", "no broker is in rack %s", rack)
	}
}

// names returns the topics to check: the listed ones, and those that match a pattern now.
func (k *checks) names(ctx context.Context, queries *kafkaQueries) []string {
	names := k.config.TopicNames()
	if len(k.config.Patterns) == 0 {
		return names
	}
	if queries == nil {
		k.add(StatusSkipped, "topic", "patterns", "", "no broker is reachable to list the topics that match")
		return names
	}
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	matching, beyond, err := queries.group.Survey(ctx)
	if err != nil {
		k.failed("topic", "patterns", err)
		return names
	}
	if len(matching) == 0 {
		k.add(StatusProblem, "topic", "patterns", "correct the patterns in topics, or create a topic", "no topic matches a pattern now")
	}
	for _, detail := range slices.Compact(slices.Sorted(func(yield func(string) bool) {
		for _, a := range beyond {
			if !yield(a.Detail) {
				return
			}
		}
	})) {
		k.add(StatusWarning, "topic", "patterns", "raise max_topics, or name topics that are not meant under deny", "%s", detail)
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(names, matching))))
}

// topics checks each topic, and the position of each of its partitions.
func (k *checks) topics(ctx context.Context, queries *kafkaQueries, tables []*checkedTable) {
	for _, t := range tables {
		for _, name := range t.topics {
			if queries == nil {
				k.add(StatusSkipped, "topic", name, "", "no broker is reachable")
				continue
			}
			k.topic(ctx, queries, t, name)
		}
	}
}

func (k *checks) topic(ctx context.Context, queries *kafkaQueries, t *checkedTable, name string) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	asking := *queries
	asking.retry = k.retrying(ctx)
	l, err := asking.inspect(ctx, t.Table, name, t.snapshot)
	if err == nil {
		err = l.complete()
	}
	held, isHold := errors.AsType[*hold.Error](err)
	switch {
	case isHold && held.Reason == hold.TopicMissing:
		k.add(StatusProblem, "topic", name, k.missingTopic(ctx, queries, name), "%s", held.Why())
		return
	case err != nil:
		k.failed("topic", name, err)
		return
	}
	text := Counting(int64(len(l.topic.Partitions)), "partition")
	settings, err := queries.client.TopicSettings(ctx, name)
	if err == nil {
		text += ", " + retention(settings)
	}
	k.add(StatusOK, "topic", name, "", "%s; rows go to table %s", text, t.table.Table)
	switch {
	case err != nil:
		what, _ := explainError(err)
		k.add(StatusWarning, "topic", name, "allow DescribeConfigs on the topic to let check and metrics know its retention", "%s", what)
	case settings.Delete && settings.RetentionTime >= 0 && settings.RetentionTime < shortRetention:
		k.add(StatusWarning, "topic", name, "raise retention.ms to what an outage may take", "records are lost when the pipeline stands for longer than %s",
			config.FormatDuration(settings.RetentionTime))
	}
	if err == nil && settings.Compact {
		k.add(StatusWarning, "topic", name, "compaction takes away records that were not read in time; the table gets those that are left",
			"compacted: Kafka deletes a record once a newer one has its key")
	}
	if t.known {
		k.positions(ctx, l)
	} else {
		k.add(StatusSkipped, "position", name, "", "the table could not be read")
	}
}

// retention returns a text that says how long a topic keeps records.
func retention(s kafka.TopicSettings) string {
	const ever = "kept without a limit"
	if !s.Delete {
		return ever
	}
	var limits []string
	if s.RetentionTime >= 0 {
		limits = append(limits, config.FormatDuration(s.RetentionTime))
	}
	if s.RetentionBytes >= 0 {
		limits = append(limits, config.FormatSize(s.RetentionBytes)+" per partition")
	}
	if limits == nil {
		return ever
	}
	return "kept for " + strings.Join(limits, " or ")
}

// positions adds a finding for each hold that a member would now set on partitions of a topic. If there is none, it
// adds a finding with the lag.
func (k *checks) positions(ctx context.Context, l *inspection) {
	var lag int64
	known, hidden, held := 0, 0, make(map[hold.Reason][]*hold.Hold)
	var reasons []hold.Reason
	for _, p := range l.partitions() {
		at, end := l.position(p), l.bounds[p].LastStable
		if at >= 0 {
			known++
			lag += max(0, end-at)
		}
		if h := l.hold(p); h != nil {
			if of := k.heldByMember(ctx).of(p.Topic, p.ID); of != nil && hides(of.Reason, h.Reason) { // a hold that the member reports has its own finding
				hidden++
				continue
			}
			if held[h.Reason] == nil {
				reasons = append(reasons, h.Reason)
			}
			held[h.Reason] = append(held[h.Reason], h)
		}
	}
	for _, r := range reasons {
		k.add(StatusProblem, "position", l.topic.Name, instruction(r.EndsBy()), "%s held %s, first: %s", Counting(int64(len(held[r])), "partition"), r, held[r][0].Detail)
	}
	switch {
	case len(reasons) > 0, hidden > 0:
	case known == 0:
		topic, _, _ := k.config.Route(l.topic.Name) // no error is possible, because the topic has a table
		k.add(StatusOK, "position", l.topic.Name, "", "not read yet, start: %s", topic.Start)
	default:
		k.add(StatusOK, "position", l.topic.Name, "", "%s in the table, %s behind", Counting(int64(known), "partition"), Counting(lag, "record"))
	}
}

// group checks that the coordinator of the group responds, and that a member could join the group.
func (k *checks) group(ctx context.Context, queries *kafkaQueries) {
	name := k.config.Kafka.Group
	if queries == nil {
		k.add(StatusSkipped, "group", name, "", "no broker is reachable")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	var state kafka.GroupState
	err := k.retrying(ctx)(func(ctx context.Context) (err error) { state, err = queries.group.State(ctx); return err })
	switch {
	case err != nil:
		k.failed("group", name, err)
	case state.State == "Dead" || state.State == "":
		k.add(StatusOK, "group", name, "", "does not exist yet")
	case len(state.Members) == 0:
		k.add(StatusOK, "group", name, "", "no members")
	case state.Foreign != "":
		k.add(StatusProblem, "group", name, kafka.ForeignGroup, "%s with assignor %s, which no connector can join: %s", strings.ToLower(state.State), state.Foreign,
			membersOf(state))
	default:
		k.add(StatusOK, "group", name, "", "%s, %s", strings.ToLower(state.State), membersOf(state))
	}
}

// membersOf returns a text with the number of members of a group and the names of some of them.
func membersOf(state kafka.GroupState) string {
	const most = 4
	var names []string
	for i, m := range state.Members {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(state.Members)-most))
			break
		}
		client := m.Client
		if !config.Plain.MatchString(client) { // another program chose this name, so it is quoted
			client = strconv.Quote(client)
		}
		name := client + " at " + strings.TrimPrefix(m.Host, "/")
		if len(m.Topics) > 0 {
			name += " (" + Counting(int64(len(m.Topics)), "topic") + ")"
		}
		names = append(names, name)
	}
	return Counting(int64(len(state.Members)), "member") + ": " + strings.Join(names, ", ")
}
