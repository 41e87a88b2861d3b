package config

import (
	"slices"
	"strings"
)

// laterKeys are keys of later versions. The loader refuses them by name, so that no operator relies on a protection that
// this version does not have.
var laterKeys = [...]string{
	"traces",
}

// defaultNames maps the names that other tools give to a setting to the keys of config.yaml.
var defaultNames = map[string]string{ //nolint:gosec // names of keys, not keys
	"bootstrap": "kafka.brokers", "bootstrap.servers": "kafka.brokers", "bootstrap_servers": "kafka.brokers",
	"bootstrapservers": "kafka.brokers", "servers": "kafka.brokers", "group.id": "kafka.group", "group_id": "kafka.group",
	"consumer_group": "kafka.group", "client.rack": "kafka.rack", "session.timeout.ms": "kafka.session",
	"session_timeout": "kafka.session", "topic": "topics", "bucket": "storage.url", "endpoint_url": "storage.s3.endpoint",
	"access_key_id": "storage.s3.access_key", "secret_access_key": "storage.s3.secret_key", "max_queued_messages": "queue.pause_at",
	"max_acceptable_lag": "health.lag.max", "lag_check_interval_seconds": "health.lag.every", "resume_threshold": "queue.resume_at", "per_key_channel_capacity": "queue.per_key", "log_level": "log.level",
	"flush_interval": "commit.every", "batch_size": "commit.rows", "port": "health.listen", "auto.offset.reset": "start",
	"security.protocol": "kafka.tls.enabled", "ssl": "kafka.tls.enabled", "ssl.ca.location": "kafka.tls.ca_file",
	"ssl.truststore.location": "kafka.tls.ca_file", "ssl.truststore.certificates": "kafka.tls.ca_file", "cafile": "kafka.tls.ca_file",
	"ssl.certificate.location": "kafka.tls.cert_file", "ssl.keystore.location": "kafka.tls.cert_file",
	"ssl.keystore.certificate.chain": "kafka.tls.cert_file", "ssl.key.location": "kafka.tls.key_file",
	"ssl.keystore.key":                      "kafka.tls.key_file",
	"ssl.endpoint.identification.algorithm": "kafka.tls.insecure_skip_verify",
	"enable.ssl.certificate.verification":   "kafka.tls.insecure_skip_verify", "insecure": "kafka.tls.insecure_skip_verify",
	"sasl.mechanism": "kafka.sasl.mechanism", "sasl.mechanisms": "kafka.sasl.mechanism", "sasl_mechanism": "kafka.sasl.mechanism",
	"sasl.username": "kafka.sasl.username", "sasl.password": "kafka.sasl.password", "sasl.jaas.config": "kafka.sasl.username",
	"user": "kafka.sasl.username", "sasl.oauthbearer.config": "kafka.sasl.token_file", "token": "kafka.sasl.token_file",
	"auto_offset_reset": "start", "offset": "start", "columns": "schema",
}

// nearest returns the key that the operator probably meant. It prefers a key at the same place with a similar name.
// Otherwise it returns a key elsewhere that another tool calls by this name, or whose last part is this name. It
// returns "" if there is none.
func nearest(name string, here, everywhere []string) string {
	lower := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	best, least := "", max(1, len(name)/3)+1
	for _, k := range here {
		if d := Distance(lower, k); d < least {
			best, least = k, d
		}
	}
	if best != "" {
		return best
	}
	if k := defaultNames[lower]; k != "" {
		if last := k[strings.LastIndexByte(k, '.')+1:]; slices.Contains(here, last) {
			return last
		}
		if slices.Contains(everywhere, k) || k == "topics" {
			return k
		}
		if slices.Contains(everywhere, "defaults."+k) {
			return "defaults." + k
		}
	}
	for _, k := range everywhere {
		if k == lower || strings.HasSuffix(k, "."+lower) {
			return k
		}
	}
	return ""
}

// Distance returns how many bytes must be inserted, deleted, replaced or swapped to make one name from the other. If a
// name is longer than 64 bytes, it returns 64.
func Distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var rows [3][65]int // the rows of the matrix of optimal string alignment; rows[2] is the current one
	for j := range len(b) + 1 {
		rows[2][j] = j
	}
	for i := 1; i <= len(a); i++ {
		rows[0], rows[1] = rows[1], rows[2]
		rows[2][0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[1][j]+1, rows[2][j-1]+1, rows[1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[0][j-2]+1)
			}
			rows[2][j] = d
		}
	}
	return rows[2][len(b)]
}
