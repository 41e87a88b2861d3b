//go:build lab

package rules

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// An alert is the label set of a firing alert.
type alert map[string]string

// of returns an alert of the pipeline. more are additional labels, name and value in turns.
func of(severity, name string, more ...string) alert {
	a := alert{"alertname": name, "severity": severity, "job": "sluice"}
	for i := 0; i < len(more); i += 2 {
		a[more[i]] = more[i+1]
	}
	return a
}

// eachMember returns one alert for each of ten members.
func eachMember(severity, name string, more ...string) (all []alert) {
	for i := range members {
		all = append(all, of(severity, name, append(more, "instance", instance(i))...))
	}
	return all
}

// An outage is the series that ten members export during one failure, and the alerts that must fire at each moment.
type outage struct {
	name   string
	series map[string]string // values by series, one a minute
	fires  []moment
}

type moment struct {
	at     string
	alerts []alert
}

// The group has ten members, each with a partition of each of two topics. The outage begins at minute 10.
const (
	members = 10
	minutes = 90
)

var topics = []string{"orders", "payments"}

func instance(i int) string { return fmt.Sprintf("10.0.0.%d:8080", i) }

// set sets the values of a series of member i. labels is the text inside its braces, or "".
func (o *outage) set(i int, metric, labels, values string) {
	if labels != "" {
		labels = ", " + labels
	}
	o.series[fmt.Sprintf(`%s{job="sluice", instance=%q%s}`, metric, instance(i), labels)] = values
}

// calm returns an outage in which no series changes.
func calm(name string, fires ...moment) *outage {
	o := &outage{name: name, series: map[string]string{}, fires: fires}
	always, now := fmt.Sprintf("1x%d", minutes), fmt.Sprintf("0+60x%d", minutes)
	for i := range members {
		o.set(i, "kafka_consumer_healthy", `group="orders"`, always)
		o.set(i, "kafka_consumer_total_lag", `group="orders"`, fmt.Sprintf("1000x%d", minutes))
		o.set(i, "sluice_group_joined", "", always)
		o.set(i, "sluice_group_generations_total", "", always)
		o.set(i, "sluice_lag_checked_timestamp_seconds", "", now)
		o.set(i, "sluice_canary_last_success_timestamp_seconds", "", now)
		o.set(i, "sluice_canary_interval_seconds", "", fmt.Sprintf("60x%d", minutes))
		for _, stage := range []string{"produce", "visible"} {
			o.set(i, "sluice_canary_failures_total", fmt.Sprintf("stage=%q", stage), fmt.Sprintf("0x%d", minutes))
		}
		o.set(i, "sluice_operations_log_age_seconds", "", fmt.Sprintf("2x%d", minutes))
		o.set(i, "sluice_unresolved_dead_letters_timestamp_seconds", "", now)
		o.set(i, "sluice_members_store_up", "", always)
		o.set(i, "process_start_time_seconds", "", always)
		o.set(i, "sluice_positions_unchecked_total", "", fmt.Sprintf("0x%d", minutes))
		o.set(i, "sluice_fingerprints_forgotten_total", "", fmt.Sprintf("0x%d", minutes))
		for _, topic := range topics {
			of := fmt.Sprintf(`topic=%q, partition="%d"`, topic, i)
			o.set(i, "kafka_consumer_lag", `group="orders", `+of, fmt.Sprintf("500x%d", minutes))
			o.set(i, "sluice_adjusted_lag_records", `group="orders", `+of, fmt.Sprintf("50x%d", minutes))
			o.set(i, "sluice_last_record_timestamp_seconds", of, now)
			o.set(i, "sluice_partition_verdict", of+`, verdict="OK"`, always)
			o.set(i, "sluice_partition_freshness_seconds", of, fmt.Sprintf("30x%d", minutes))
			o.set(i, "sluice_seconds_to_data_loss", of, fmt.Sprintf("604800x%d", minutes))
			o.set(i, "sluice_topic_retention_seconds", fmt.Sprintf("topic=%q", topic), fmt.Sprintf("604800x%d", minutes))
			o.set(i, "sluice_lag_critical_records", fmt.Sprintf("topic=%q", topic), fmt.Sprintf("2000x%d", minutes))
			o.set(i, "sluice_topic_info", fmt.Sprintf(`topic=%q, letters_class="financial"`, topic), always)
			o.set(i, "sluice_unresolved_dead_letters", fmt.Sprintf(`topic=%q, class="poison"`, topic), fmt.Sprintf("0x%d", minutes))
		}
		for j := range members {
			o.set(i, "worker_heartbeat_timestamp", fmt.Sprintf(`consumer_id="m-%d"`, j), now)
		}
	}
	return o
}

// held makes all partitions held from minute 10 for 50 minutes. Then members catch up for 15 minutes, in which they are
// not ready. The second half of the partitions begins to move only when the first half is current.
func (o *outage) held(reasons ...string) *outage {
	for i := range members {
		o.set(i, "kafka_consumer_healthy", `group="orders"`, "1x9 0x64 1x20")
		for t, topic := range topics {
			of := fmt.Sprintf(`topic=%q, partition="%d"`, topic, i)
			o.set(i, "sluice_partition_held", fmt.Sprintf("%s, reason=%q", of, reasons[(i+t)%len(reasons)]), "_x10 1x49 stale")
			o.set(i, "sluice_partition_verdict", of+`, verdict="OK"`, "1x9 stale _x64 1x20")
			o.set(i, "sluice_partition_verdict", of+`, verdict="HELD"`, "_x10 1x49 stale")
			o.set(i, "sluice_partition_verdict", of+fmt.Sprintf(", verdict=%q", []string{"WARN", "STOP"}[i%2]), "_x60 1x14 stale")
			o.set(i, "sluice_partition_freshness_seconds", of, "30x9 30+60x49 3000-200x14 30x20")
			o.set(i, "sluice_last_record_timestamp_seconds", of, "0+60x9 600x49 3600+60x30")
			o.set(i, "sluice_seconds_to_data_loss", of, "604800x9 604800-60x49 604800x30")
		}
	}
	return o
}

func kafkaDown() *outage {
	waits := of("warning", "SluiceHeldByOutage", "reason", "kafka_down")
	follow := slices.Concat(
		eachMember("warning", "SluiceCanaryFailing", "stage", "produce"), eachMember("warning", "SluiceLagUnchecked", "group", "orders"),
		[]alert{of("warning", "SluiceBreakerOpen", "dependency", "kafka"), waits},
	)
	o := calm(
		"Kafka is down for 50 minutes",
		moment{"9m", nil},
		moment{"16m", append(eachMember("warning", "SluiceCanaryFailing", "stage", "produce"), waits)},
		moment{"38m", follow},
		moment{"45m", append(slices.Clone(follow), of("critical", "SluiceHeldByLongOutage", "reason", "kafka_down"))},
		moment{"72m", eachMember("warning", "SluiceCanaryFailing", "stage", "produce")},
		moment{"85m", nil},
	).held("kafka_down")
	for i := range members {
		o.set(i, "sluice_group_joined", "", "1x9 0x49 1x30")
		o.set(i, "sluice_lag_checked_timestamp_seconds", "", "0+60x9 600x49 3600+60x30")
		o.set(i, "sluice_canary_last_success_timestamp_seconds", "", "0+60x9 600x49 3600+60x30")
		o.set(i, "sluice_canary_failures_total", `stage="produce"`, "0x9 1+1x49 51x30")
		o.set(i, "sluice_unresolved_dead_letters_timestamp_seconds", "", "0+60x59 3600+60x30")
		o.set(i, "sluice_breaker_state", `dependency="kafka"`, "0x9 2x49 0x30")
		o.set(i, "sluice_breaker_changes_total", `dependency="kafka", to="open"`, "0x9 1+1x49 51x30")
	}
	return o
}

func storeDown() *outage {
	waits := of("warning", "SluiceHeldByOutage", "reason", "store_down")
	follow := slices.Concat(
		eachMember("warning", "SluiceCanaryFailing", "stage", "visible"), eachMember("warning", "SluiceOperationsLogStale"),
		[]alert{
			of("warning", "SluiceBreakerOpen", "dependency", "store", "table", "orders"), of("warning", "SluiceBreakerOpen", "dependency", "store", "table", "payments"),
			of("warning", "ConsumerTotalLagHigh", "group", "orders"), waits,
		},
	)
	o := calm(
		"S3 is down for 50 minutes, commits are under way",
		moment{"9m", nil},
		moment{"16m", append(eachMember("warning", "SluiceCanaryFailing", "stage", "visible"), waits)},
		moment{"38m", follow},
		moment{"45m", append(slices.Clone(follow), of("critical", "SluiceHeldByLongOutage", "reason", "store_down"))},
		moment{"72m", append(eachMember("warning", "SluiceCanaryFailing", "stage", "visible"), of("warning", "ConsumerTotalLagHigh", "group", "orders"))},
		moment{"85m", nil},
	).held("store_down", "commit_undecided", "store_down")
	for i := range members {
		o.set(i, "kafka_consumer_total_lag", `group="orders"`, "1000x9 1000+1000x49 50000-3500x14 500x20")
		for _, topic := range topics {
			of := fmt.Sprintf(`topic=%q, partition="%d"`, topic, i)
			o.set(i, "kafka_consumer_lag", `group="orders", `+of, "500x9 500+500x49 25000-1700x14 500x20")
			o.set(i, "sluice_adjusted_lag_records", `group="orders", `+of, "50x9 500+500x49 25000-1700x14 50x20")
			o.set(i, "sluice_breaker_state", fmt.Sprintf(`dependency="store", table=%q`, topic), "0x9 2x49 0x30")
			o.set(i, "sluice_breaker_changes_total", fmt.Sprintf(`dependency="store", table=%q, to="open"`, topic), "0x9 1+1x49 51x30")
		}
		o.set(i, "sluice_operations_log_age_seconds", "", "2x9 2+60x49 2x30")
		o.set(i, "sluice_canary_last_success_timestamp_seconds", "", "0+60x9 600x49 3600+60x30")
		o.set(i, "sluice_canary_failures_total", `stage="visible"`, "0x9 1+1x49 51x30")
	}
	return o
}

// bothDown returns the outage [storeDown] with Kafka down as well. The reasons of the holds are the same as in
// storeDown, because a claim has only one. The members have not joined their group and cannot check their lag.
func bothDown() *outage {
	o := storeDown()
	o.name = "Kafka and S3 are down for 50 minutes"
	follow := slices.Concat(o.fires[2].alerts, eachMember("warning", "SluiceLagUnchecked", "group", "orders"), []alert{of("warning", "SluiceBreakerOpen", "dependency", "kafka")})
	o.fires = []moment{o.fires[0], o.fires[1], {"38m", follow}, o.fires[5]}
	for i := range members {
		o.set(i, "sluice_group_joined", "", "1x9 0x49 1x30")
		o.set(i, "sluice_lag_checked_timestamp_seconds", "", "0+60x9 600x49 3600+60x30")
		o.set(i, "sluice_breaker_state", `dependency="kafka"`, "0x9 2x49 0x30")
		o.set(i, "sluice_breaker_changes_total", `dependency="kafka", to="open"`, "0x9 1+1x49 51x30")
	}
	return o
}

// podKilled ends member 3 at minute 10. Member 4 owns its partitions from minute 12 on, and a new member runs from
// minute 13 on.
func podKilled() *outage {
	o := calm(
		"one pod is killed",
		moment{"9m", nil},
		moment{"13m", []alert{of("warning", "SluiceMemberLost", "consumer_id", "m-3")}},
		moment{"20m", []alert{of("warning", "SluiceMemberLost", "consumer_id", "m-3")}},
		moment{"69m", []alert{of("warning", "SluiceMemberLost", "consumer_id", "m-3")}},
		moment{"75m", nil},
	)
	gone := fmt.Sprintf(`instance=%q`, instance(3))
	for series := range o.series {
		if strings.Contains(series, gone) {
			o.series[series] = strings.Replace(o.series[series], fmt.Sprintf("x%d", minutes), "x9 stale", 1)
		}
	}
	for _, topic := range topics {
		of := fmt.Sprintf(`topic=%q, partition="3"`, topic)
		o.set(4, "kafka_consumer_lag", `group="orders", `+of, "_x11 500x80")
		o.set(4, "sluice_adjusted_lag_records", `group="orders", `+of, "_x11 50x80")
		o.set(4, "sluice_last_record_timestamp_seconds", of, "_x11 660+60x80")
		o.set(4, "sluice_seconds_to_data_loss", of, "_x11 604800x80")
	}
	for i := range members + 1 {
		o.set(i, "worker_heartbeat_timestamp", `consumer_id="m-10"`, "_x12 780+60x77")
		if i != 3 {
			o.set(i, "worker_heartbeat_timestamp", `consumer_id="m-3"`, "0+60x9 540x60 stale")
		}
	}
	o.set(10, "kafka_consumer_healthy", `group="orders"`, "_x12 0 1x77")
	o.set(10, "sluice_group_joined", "", "_x12 0 1x77")
	o.set(10, "sluice_lag_checked_timestamp_seconds", "", "_x12 780+60x77")
	return o
}

// rollingRestart restarts one member every two minutes from minute 10 on. At each moment one member is ending or
// starting.
func rollingRestart() *outage {
	o := calm("a rolling restart", moment{"12m", nil}, moment{"20m", nil}, moment{"31m", nil}, moment{"45m", nil}, moment{"80m", nil})
	for i := range members {
		ends := 10 + 2*i // of the two minutes of a restart, the member is SHUTTING_DOWN in one and absent in the other
		back := minutes - ends - 2
		o.set(i, "kafka_consumer_healthy", `group="orders"`, fmt.Sprintf("1x%d 0 stale 0 1x%d", ends-1, back))
		o.set(i, "sluice_group_joined", "", fmt.Sprintf("1x%d 1 stale 0 1x%d", ends-1, back))
		o.set(i, "process_start_time_seconds", "", fmt.Sprintf("1x%d 1 stale %dx%d", ends-1, 60*(ends+2), back))
		o.set(i, "sluice_group_generations_total", "", fmt.Sprintf("1x9 2+1.25x%d %dx70", 2*members-1, 2+25))
		for j := range members {
			ended := 10 + 2*j
			o.set(i, "worker_heartbeat_timestamp", fmt.Sprintf(`consumer_id="m-%d"`, j), fmt.Sprintf("0+60x%d stale", ended))
			o.set(i, "worker_heartbeat_timestamp", fmt.Sprintf(`consumer_id="n-%d"`, j), fmt.Sprintf("_x%d %d+60x%d", ended+2, 60*(ended+2), minutes-ended-2))
			o.set(i, "sluice_member_shutting_down_timestamp_seconds", fmt.Sprintf(`consumer_id="m-%d"`, j), fmt.Sprintf("_x%d %d stale", ended-1, 60*ended-20))
			o.set(i, "sluice_members", `state="shutting_down"`, "0x9 1x20 0x60")
		}
	}
	return o
}

// promtoolFile is a test file of promtool that expects certain alerts to fire.
type promtoolFile struct {
	RuleFiles []string       `yaml:"rule_files"`
	Interval  string         `yaml:"evaluation_interval"`
	Tests     []promtoolTest `yaml:"tests"`
}

type promtoolTest struct {
	Name     string           `yaml:"name"`
	Interval string           `yaml:"interval"`
	Series   []promtoolSeries `yaml:"input_series"`
	Queries  []promtoolQuery  `yaml:"promql_expr_test"`
}

type promtoolSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type promtoolQuery struct {
	Expr    string           `yaml:"expr"`
	At      string           `yaml:"eval_time"`
	Samples []promtoolSample `yaml:"exp_samples"`
}

type promtoolSample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

// test returns the outage in promtool's format.
func (o *outage) test() promtoolTest {
	test := promtoolTest{Name: o.name, Interval: "1m"}
	for _, series := range slices.Sorted(maps.Keys(o.series)) {
		test.Series = append(test.Series, promtoolSeries{series, o.series[series]})
	}
	for _, m := range o.fires {
		q := promtoolQuery{Expr: `ALERTS{alertstate="firing"}`, At: m.at}
		for _, a := range m.alerts {
			labels := []string{`alertstate="firing"`}
			for _, name := range slices.Sorted(maps.Keys(a)) {
				labels = append(labels, fmt.Sprintf("%s=%q", name, a[name]))
			}
			q.Samples = append(q.Samples, promtoolSample{"ALERTS{" + strings.Join(labels, ", ") + "}", 1})
		}
		test.Queries = append(test.Queries, q)
	}
	return test
}

// TestOutages expects one failure to raise at most one critical alert, for any number of members, topics and tables.
// The moments of an outage list every alert that fires.
func TestOutages(t *testing.T) {
	for _, o := range []*outage{kafkaDown(), storeDown(), bothDown(), podKilled(), rollingRestart()} {
		t.Run(o.name, func(t *testing.T) {
			for _, m := range o.fires {
				critical := 0
				for _, a := range m.alerts {
					if a["severity"] == "critical" {
						critical++
					}
				}
				if critical > 1 {
					t.Errorf("%d critical alerts are expected at %s", critical, m.at)
				}
			}
			file := promtoolFile{RuleFiles: []string{filepath.Join(folder(t), "alerts.yaml")}, Interval: "1m", Tests: []promtoolTest{o.test()}}
			text, err := yaml.Marshal(file)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "outage.yaml")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, ok := promtool(t, "test", "rules", path); !ok {
				t.Error(out)
			}
		})
	}
}
