package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sluice/connector/schema"
)

// This file checks values that are valid alone but not together.

// check completes the configuration (the group's name, paths of tables, schemas from files) and reports missing and
// contradictory values.
func (l *loader) check() {
	c := l.config
	l.checkMissing()
	if c.Kafka.Group == "" {
		c.Kafka.Group = c.Pipeline
		c.origins["kafka.group"] = Origin{Note: "the pipeline's name"}
	}
	if !utf8.ValidString(c.Kafka.Group) { // the group is also a metric label
		l.report(l.at("kafka.group"), "%q is not UTF-8", c.Kafka.Group)
	}
	l.checkTopics()
	l.checkCanary()
	l.checkLivenessFile()
	l.checkKeys()
	l.checkEndpoint()
	l.checkTLS()
	l.checkSASL()
	l.checkPairs()
	l.checkFingerprints()
	l.checkMembers()
	l.checkOps()
	l.checkMirror()
	l.checkMemory()
	if c.Kafka.Session < 10*time.Second {
		l.warning(l.at("kafka.session"), "%s is short: each pause of this length causes a rebalance; the default is 30s", FormatDuration(c.Kafka.Session))
	}
	if c.Shutdown.Drain > 25*time.Second {
		l.warning(l.at("shutdown.drain"), "Kubernetes kills a pod 30s after SIGTERM: set terminationGracePeriodSeconds to %d or more",
			int((c.Shutdown.Drain+9*time.Second).Seconds())+1)
	}
}

// at returns a problem, still without a text, at the place in the file or environment from which a key got its value.
func (l *loader) at(path string) Problem {
	o, known := l.config.origins[path]
	switch {
	case o.File != "":
		return Problem{File: o.File, Line: o.Line, Key: path}
	case known && len(o.Variables) > 0:
		return Problem{File: environment, Key: path}
	}
	return Problem{File: l.file, Key: path}
}

func (l *loader) report(p Problem, format string, args ...any) {
	p.Text = l.describe(format, args)
	l.problems = append(l.problems, p)
}

func (l *loader) has(path string) bool {
	_, ok := l.config.origins[path]
	return ok
}

func (l *loader) checkMissing() {
	for _, f := range l.config.keys() {
		if f.missing == "" || l.has(f.path) || l.failed(f.path) {
			continue
		}
		section, _, _ := strings.Cut(f.path, ".")
		l.problem(l.places[section], f.path, "is missing: %s", f.missing)
	}
}

// failed reports whether a key, or the section that it is in, already has a problem. It also returns true if the value
// of the key or of its section is unknown, because a variable is not set.
func (l *loader) failed(path string) bool {
	for _, p := range l.problems {
		if !p.Warning && p.Key != "" && (p.Key == path || strings.HasPrefix(path, p.Key+".")) {
			return true
		}
	}
	return slices.ContainsFunc(l.valueless, func(key string) bool { return key == path || strings.HasPrefix(path, key+".") })
}

func (l *loader) checkTopics() {
	c := l.config
	names := c.TopicNames()
	for _, name := range names {
		t := c.Topics[name]
		if at := l.set(name, "table"); !l.failed(at) {
			var err error
			if t.Table, err = tablePath(t.Table, name); err != nil {
				l.report(l.at(at), "%v", err)
			}
		}
		l.checkTopic(name, &t)
		c.Topics[name] = t
	}
	for _, p := range c.Patterns {
		l.checkPattern(p)
		l.checkTopic(p.Name, &p.Topic)
	}
	if len(names) > 0 || len(c.Patterns) > 0 {
		l.checkLetterTopics()
		l.checkTables()
		l.checkLetters()
		return
	}
	if l.withoutTopics {
		return
	}
	if !l.failed("topics") && len(l.topics) == 0 && !l.failedBelow("topics.") {
		l.problem(l.places["topics"], "topics", "is missing: write topics: {orders: {}} with the name of your topic")
	}
	if !l.failed("defaults.schema") {
		l.checkSchema("defaults.schema", &c.Defaults)
	}
}

func (l *loader) failedBelow(prefix string) bool {
	for _, p := range l.problems {
		if !p.Warning && strings.HasPrefix(p.Key, prefix) {
			return true
		}
	}
	return slices.ContainsFunc(l.valueless, func(key string) bool { return strings.HasPrefix(key, prefix) })
}

// set returns the path of the key from which a topic gets its value of name: the key in the entry of the topic if it is
// written there, otherwise the key in defaults.
func (l *loader) set(topic, name string) string {
	if own := "topics." + topic + "." + name; l.has(own) {
		return own
	}
	return "defaults." + name
}

// checkTopic checks an entry of topics, except for its table.
func (l *loader) checkTopic(name string, t *Topic) {
	l.checkMetadataColumns(name, t)
	l.checkStart(name, t)
	if at := l.set(name, "health_records.secret_file"); !l.failed(at) {
		l.secretFile(at, &t.HealthRecords.SecretFile)
	}
	l.checkLetterFormat(name, t)
	l.checkArchive(name, t)
	l.checkRecordRetry(name, t)
	l.checkThresholds(name, t)
	at := l.set(name, "schema")
	if l.failed(at) || t.IsLetters() {
		return
	}
	l.checkSchema(at, t)
	l.checkUnknownFields(name, t)
	l.checkColumnOptions(name, t)
	l.checkTombstones(name, t)
	l.checkPartitions(name, t)
	l.checkIdentity(name, t)
	l.checkStatistics(name, t)
	if at == "defaults.schema" {
		l.config.Defaults.Schema, l.config.Defaults.SchemaFile = t.Schema, t.SchemaFile
	}
}

// checkSchema parses the DDL of t. DDL has at least a name and a type, so a single word is instead the name of a file
// with the DDL, relative to the folder of config.yaml. The content of the file replaces the word in t.Schema.
func (l *loader) checkSchema(at string, t *Topic) {
	if t.Infers() {
		return
	}
	if !strings.ContainsAny(strings.TrimSpace(t.Schema), " \t\r\n") {
		t.SchemaFile = strings.TrimSpace(t.Schema)
		data, err := readFile(l.beside(t.SchemaFile))
		if err != nil {
			l.report(l.at(at), "the file %s %v: write DDL such as order_id string not null, or the name of a file that holds it", t.SchemaFile, err)
			return
		}
		t.Schema = string(data)
	}
	columns, err := schema.ParseDDL(t.Schema)
	if err == nil && slices.Contains([]string{unknownRescue, unknownAdd}, t.Unknown()) && columns.Has([]string{schema.Rescued}) {
		err = fmt.Errorf("column %s is made by unknown_fields: %s: remove it from the schema", schema.Rescued, t.Unknown())
	}
	if err != nil {
		if t.SchemaFile != "" {
			err = fmt.Errorf("file %s: %w", t.SchemaFile, err)
		}
		l.report(l.at(at), "%v", err)
		return
	}
	l.checkReservedNames(at, columns)
}

// checkUnknownFields checks that a topic without declared columns makes columns of its fields. It would have none
// otherwise.
func (l *loader) checkUnknownFields(name string, t *Topic) {
	at := l.set(name, "unknown_fields")
	if !t.Infers() || t.Unknown() == unknownAdd || l.failed(at) {
		return
	}
	l.report(l.at(at), "topic %s: %s with inferred columns: no field would ever get a column. Remove it, or write schema: the columns as DDL, such as order_id string not null, qty int",
		name, t.UnknownFields)
}

// beside resolves a path relative to the folder of config.yaml.
func (l *loader) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(l.file), path)
}

// checkKeys checks the two parts of the S3 credentials, and reads those that are in files. It reports a problem if
// only one part is given, or if one is a text and the other a file.
func (l *loader) checkKeys() {
	s3 := &l.config.Storage.S3
	given := func(name string, key Secret, file *string) (at string) {
		at = "storage.s3." + name
		if *file == "" {
			if key == "" {
				return ""
			}
			return at
		}
		*file = l.beside(*file)
		if key != "" {
			l.report(l.at(at+"_file"), "is given together with %s: remove one of them", name)
			return at
		}
		if data, err := readFile(*file); l.missingFile(at+"_file", err) {
			return at + "_file"
		} else if err != nil {
			l.report(l.at(at+"_file"), "the file %v: write the name of a file that holds the key, seen from the folder of the configuration", err)
		} else if strings.TrimSpace(string(data)) == "" {
			l.report(l.at(at+"_file"), "the file %s is empty: write the key into it", *file)
		}
		return at + "_file"
	}
	access := given("access_key", s3.AccessKey, &s3.AccessKeyFile)
	secret := given("secret_key", s3.SecretKey, &s3.SecretKeyFile)
	switch {
	case l.failedBelow("storage.s3."): // the part that is missing may be the one with a problem
	case access != "" && secret != "" && (s3.AccessKeyFile == "") != (s3.SecretKeyFile == ""):
		l.report(l.at(secret), "does not go with %s: write both as files, or none", strings.TrimPrefix(access, "storage.s3."))
	case access != "" && secret == "":
		l.report(l.at(access), "is given without secret_key: write both, or neither to use the default credential chain")
	case access == "" && secret != "":
		l.report(l.at(secret), "is given without access_key: write both, or neither to use the default credential chain")
	}
}

// checkPairs reports a problem for each pair of values that contradict each other, for example a queue.resume_at that
// is not below queue.pause_at.
func (l *loader) checkPairs() {
	c := l.config
	l.pair(c.Queue.ResumeAt < c.Queue.PauseAt, "queue.resume_at", "must be below", "queue.pause_at")
	l.pair(c.Queue.PerKey <= c.Queue.PauseAt, "queue.per_key", "must not be above", "queue.pause_at")
	l.pair(c.Retry.Initial <= c.Retry.Max, "retry.initial", "must not be above", "retry.max")
	l.pair(c.Health.Lag.Rises < c.Health.Lag.Window, "health.lag.rises", "must be below", "health.lag.window")
	l.pair(c.Kafka.Fetch.MaxWait < c.Kafka.Session/2, "kafka.fetch.max_wait", "must be below half of", "kafka.session")
}

// pair reports a problem with the values of the keys a and b, unless ok is true. must says what a must be in relation
// to b, for example "must be below". The problem is reported at the one of them that is later in the file.
func (l *loader) pair(ok bool, a, must, b string) {
	if ok || l.failed(a) || l.failed(b) {
		return
	}
	show := func(path string) string {
		keys := l.config.keys()
		f := keys[slices.IndexFunc(keys, func(f key) bool { return f.path == path })]
		return fmt.Sprintf("%s (%s)", f.node().Value, l.config.origins[path])
	}
	p, q := l.at(a), l.at(b)
	if p.Line < q.Line || !l.has(a) {
		l.report(q, "%s %s %s %s: change one of them", a, show(a), must, show(b))
		return
	}
	l.report(p, "%s %s %s %s: change one of them", show(a), must, b, show(b))
}
