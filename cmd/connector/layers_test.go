package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "sluice/"

// layers lists the packages of Sluice that each package may import: only those below it. cmd may import all of them,
// tests may import any, and no package imports cmd or test. Keep it equal to the picture in docs/architecture.md.
var layers = map[string][]string{
	// Policy: decides without a vendor's library and without I/O.
	"classify":                       {},
	"classify/classtest":             {"classify"},
	"classify/postgres":              {"classify", "secure/pgconfig"},
	"classify/postgres/postgrestest": {},
	"idempotency":                    {},
	"idempotency/offsets":            {},
	"idempotency/storetest":          {"idempotency"},
	"reliability":                    {"classify", "reliability/pulse"},
	"reliability/pulse":              {},
	"reliability/bytepool":           {},
	"reliability/connlimit":          {"reliability"},
	"reliability/origin":             {"idempotency"},
	"reliability/panics":             {},
	"reliability/deadletter":         {"classify", "idempotency"},
	"reliability/hold":               {"classify", "idempotency"},
	"health":                         {"reliability/hold"},
	"secure":                         {},
	"secure/reload":                  {},
	"secure/tokens":                  {"secure/reload"},
	"secure/webconfig":               {"secure/reload"},
	"secure/pgconfig":                {"secure"},
	// Pipeline: the path of a record. Package connector has the words and the interfaces.
	"connector":               {"classify", "reliability", "reliability/hold", "reliability/bytepool", "reliability/deadletter", "reliability/origin", "reliability/panics", "idempotency", "idempotency/offsets"},
	"connector/connectortest": {"classify", "connector", "idempotency"},
	"connector/plan":          {"connector", "classify", "idempotency", "reliability/deadletter", "reliability/hold", "reliability/origin"},
	"connector/lane":          {"connector", "connector/plan", "classify", "idempotency", "reliability", "reliability/bytepool", "reliability/origin", "reliability/pulse"},
	"connector/commit": {
		"connector", "connector/lane", "connector/plan", "classify", "idempotency", "reliability", "reliability/bytepool", "reliability/deadletter",
		"reliability/hold", "reliability/panics", "reliability/pulse",
	},
	"connector/intake": {
		"connector", "connector/commit", "connector/lane", "connector/plan", "classify", "idempotency", "reliability", "reliability/deadletter",
		"reliability/hold", "reliability/pulse",
	},
	"connector/pipeline": {"connector", "connector/commit", "connector/intake", "connector/lane", "classify", "reliability", "reliability/pulse"},
	// Adapters: they do input and output.
	"connector/decode":            {"connector", "connector/schema", "classify", "idempotency", "reliability/deadletter", "reliability/hold"},
	"connector/decode/decodetest": {"classify", "connector", "connector/schema"},
	"connector/schema":            {"connector", "idempotency", "reliability/hold"},
	"connector/kafka": {
		"connector", "classify", "idempotency", "reliability", "reliability/bytepool", "reliability/deadletter", "reliability/hold", "reliability/pulse",
		"connector/kafka/dial", "connector/kafka/frame", "connector/kafka/recordbatch",
	},
	"connector/kafka/dial":        {"connector/kafka/frame", "reliability", "secure"},
	"connector/kafka/frame":       {},
	"connector/kafka/recordbatch": {"connector", "reliability/hold"},
	"idempotency/postgres":        {"classify", "classify/postgres", "idempotency", "secure/pgconfig"},
	"sink/delta": {
		"connector", "classify", "reliability", "reliability/hold", "reliability/panics", "reliability/pulse", "idempotency",
		"sink/delta/bounded", "sink/delta/datafile", "sink/delta/deltalog", "sink/delta/objstore", "sink/delta/properties", "sink/delta/scan", "connector/schema", "sink/logappend",
	},
	"sink/delta/bounded":               {},
	"sink/delta/datafile":              {"connector", "reliability/pulse"},
	"sink/delta/deltalog":              {"classify", "reliability/panics", "sink/delta/bounded", "sink/delta/objstore", "sink/delta/properties", "sink/logappend"},
	"sink/delta/deltatest":             {"sink/delta/deltalog", "sink/delta/objstore"},
	"sink/delta/objstore":              {"classify", "secure"},
	"sink/delta/properties":            {},
	"sink/delta/objstore/objstoretest": {"classify", "sink/delta/objstore"},
	"sink/delta/scan":                  {"connector", "connector/schema", "reliability/hold", "reliability/panics", "sink/delta/bounded", "sink/delta/deltalog", "sink/delta/objstore"},
	"sink/logappend":                   {"classify", "sink/delta/objstore"},
	"sink/opslog":                      {"classify", "idempotency", "idempotency/offsets", "reliability", "reliability/hold", "sink/delta/objstore", "sink/logappend"},
	"sink/opslog/mirror":               {"reliability", "reliability/panics", "sink/opslog"},
	"sink/opslog/mirror/postgres":      {"classify/postgres", "secure/pgconfig", "sink/opslog", "sink/opslog/mirror"},
	"health/canary":                    {"health", "reliability"},
	"health/lettercount":               {"classify", "idempotency", "idempotency/offsets"},
	"health/liveness":                  {"reliability", "reliability/pulse"},
	"health/membership":                {"health", "reliability", "reliability/panics"},
	"health/membership/membershiptest": {"health/membership"},
	"health/membership/postgres":       {"classify/postgres", "health/membership", "reliability/panics", "secure/pgconfig"},
	"health/membership/redis":          {"health/membership", "health/membership/redis/resp", "secure"},
	"health/membership/redis/resp":     {},
	"health/ops":                       {"health", "reliability", "reliability/connlimit", "reliability/hold"},
	// Wiring.
	"internal/admin": {
		"classify", "connector", "connector/commit", "connector/plan", "connector/decode", "connector/kafka", "connector/kafka/dial", "connector/schema", "health", "health/membership",
		"idempotency", "idempotency/offsets", "internal/config", "internal/fail", "internal/lookup", "internal/open", "internal/replay", "reliability", "reliability/deadletter",
		"reliability/hold", "reliability/origin", "reliability/panics", "sink/delta", "sink/delta/deltalog", "sink/delta/objstore", "sink/delta/scan", "sink/opslog",
	},
	// A front end, as cmd is: no other package imports it.
	"internal/api": {
		"health", "health/ops", "internal/admin", "internal/config", "internal/fail", "reliability", "reliability/connlimit", "reliability/panics", "secure",
		"secure/reload", "secure/tokens", "secure/webconfig", "sink/delta/deltalog", "sink/opslog",
	},
	"internal/app": {
		"classify", "connector", "connector/pipeline", "connector/decode", "connector/kafka", "connector/kafka/dial", "health", "health/canary", "health/lettercount",
		"health/liveness", "health/membership", "health/ops", "idempotency", "idempotency/offsets", "internal/config", "internal/fail", "internal/lookup", "internal/open",
		"reliability", "reliability/bytepool", "reliability/deadletter", "reliability/hold", "reliability/origin", "reliability/pulse", "secure/reload", "sink/delta",
		"sink/delta/datafile", "sink/delta/deltalog", "sink/delta/objstore", "sink/delta/scan", "sink/opslog", "sink/opslog/mirror",
	},
	"internal/fail": {},
	"internal/replay": {
		"classify", "connector", "connector/plan", "idempotency", "idempotency/offsets", "internal/lookup", "reliability", "reliability/origin", "sink/delta",
		"sink/delta/scan", "sink/opslog",
	},
	"internal/config": {
		"connector", "connector/decode", "connector/kafka", "connector/kafka/dial", "health", "health/membership", "health/membership/redis", "idempotency", "reliability",
		"reliability/bytepool", "reliability/deadletter", "reliability/origin", "secure", "secure/pgconfig", "secure/tokens", "secure/webconfig", "connector/schema",
		"sink/delta/properties",
	},
	"internal/laketest": {
		"classify", "connector", "connector/kafka", "idempotency", "internal/config", "reliability/deadletter", "sink/delta", "sink/delta/deltalog",
		"sink/delta/objstore",
	},
	"internal/lookup": {
		"connector", "connector/decode", "connector/kafka", "health/lettercount", "idempotency", "idempotency/offsets", "internal/config", "internal/open", "reliability",
		"reliability/hold", "sink/delta/deltalog", "sink/delta/scan",
	},
	"internal/terminal": {"internal/config"},
	"internal/open": {
		"classify", "connector/kafka", "connector/kafka/dial", "health/membership", "health/membership/postgres", "health/membership/redis",
		"idempotency/postgres", "internal/config", "reliability", "reliability/hold", "reliability/panics", "sink/delta/objstore",
		"sink/opslog/mirror/postgres",
	},
}

func TestLayers(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from := strings.TrimPrefix(fields[0], module)
		if strings.HasPrefix(from, "cmd/") || strings.HasPrefix(from, "test/") {
			continue
		}
		seen[from] = true
		allowed, known := layers[from]
		if !known {
			t.Errorf("%s has no layer yet: say here what it may import", from)
		}
		for _, path := range fields[1:] {
			if to, ours := strings.CutPrefix(path, module); ours && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s", from, to)
			}
		}
	}
	for from := range layers {
		if !seen[from] {
			t.Errorf("%s has a layer and is not there", from)
		}
	}
}
