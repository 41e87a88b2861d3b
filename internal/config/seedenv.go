package config

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// This file reads the environment variables of the systems that Sluice replaces, so that their pods can keep their
// manifests. Each variable overrides config.yaml. An empty variable counts as unset.

// SeedKeys are the variables that set one key.
var SeedKeys = [...]struct{ Variable, Key string }{
	{"KAFKA_BOOTSTRAP_SERVERS", "kafka.brokers"},
	{"KAFKA_GROUP_ID", "kafka.group"},
	{"MAX_QUEUED_MESSAGES", "queue.pause_at"},
	{"RESUME_THRESHOLD", "queue.resume_at"},
	{"PER_KEY_CHANNEL_CAPACITY", "queue.per_key"},
	{"MAX_ACCEPTABLE_LAG", "health.lag.max"},
}

// Variables whose texts are not simply the value of one key.
const (
	SeedTopic      = "KAFKA_TOPIC"       // replaces all topics by one
	SeedPort       = "HEALTH_CHECK_PORT" // replaces the port of health.listen and keeps the host
	SeedLagEvery   = "LAG_CHECK_INTERVAL_SECONDS"
	SeedLevel      = "LOG_LEVEL"
	SeedLevelOfNET = "Logging__LogLevel__Default"
)

// seedLevels are .NET's names of log levels (Microsoft.Extensions.Logging.LogLevel), in lower case.
var seedLevels = map[string]string{
	"trace": "debug", "debug": "debug", "information": "info", "info": "info", "warning": "warn", "warn": "warn",
	"error": "error", "critical": "error", "none": "error",
}

// seedVariables reads the variables, sets the keys of the configuration that they override, and reports those with an
// invalid text.
func (l *loader) seedVariables() {
	keys := l.config.keys()
	set := func(variable, path, text string) {
		f := keys[slices.IndexFunc(keys, func(f key) bool { return f.path == path })]
		texts := []string{text}
		if f.list {
			texts = splitList(text)
		}
		if err := f.set(texts); err != nil {
			l.variable(variable, "%v", err)
		}
		l.config.origins[path] = Origin{Variables: []string{variable}}
	}
	for _, s := range SeedKeys {
		if v := l.seed(s.Variable); v != "" {
			set(s.Variable, s.Key, v)
		}
	}
	if v := l.seed(SeedPort); v != "" {
		if host, _, err := net.SplitHostPort(l.config.Health.Listen); err == nil {
			set(SeedPort, "health.listen", net.JoinHostPort(host, v))
		}
	}
	if v := l.seed(SeedLagEvery); v != "" {
		if _, err := strconv.ParseUint(v, 10, 32); err != nil {
			l.variable(SeedLagEvery, "%q is not a number of seconds: write a whole number such as 10", v)
		} else {
			set(SeedLagEvery, "health.lag.every", v+"s")
		}
	}
	for _, variable := range []string{SeedLevelOfNET, SeedLevel} { // the second variable takes precedence
		v := l.seed(variable)
		if v == "" {
			continue
		}
		level, known := seedLevels[strings.ToLower(v)]
		if !known {
			l.variable(variable, "%q is unknown: write debug, info, warn or error, or one of .NET's names", v)
			continue
		}
		set(variable, "log.level", level)
	}
	l.resumeAt()
	l.seedTopic()
}

// resumeAt sets queue.resume_at to half of queue.pause_at if only pause_at is set. A resume_at in the file stays,
// unless a variable sets pause_at to its value or less: it was meant for the pause_at in the file.
func (l *loader) resumeAt() {
	queue, pause, resume := &l.config.Queue, l.config.origins["queue.pause_at"], l.config.origins["queue.resume_at"]
	byVariable := len(pause.Variables) > 0
	switch {
	case pause.File == "" && !byVariable, len(resume.Variables) > 0:
		return
	case resume.File != "" && (!byVariable || queue.ResumeAt < queue.PauseAt):
		return
	}
	queue.ResumeAt = queue.PauseAt / 2
	l.config.origins["queue.resume_at"] = Origin{Note: "half of queue.pause_at"}
}

// seedTopic replaces all topics and patterns by the one topic that the variable names. If the file has an entry of
// this name, the topic keeps the settings of that entry; otherwise it gets those of defaults.
func (l *loader) seedTopic() {
	name := l.seed(SeedTopic)
	if name == "" {
		return
	}
	if err := topicName(name); err != nil {
		l.variable(SeedTopic, "%q %v", name, err)
		return
	}
	topic, known := l.config.Topics[name]
	if !known {
		topic = l.config.Defaults
		l.config.origins["topics."+name] = Origin{Variables: []string{SeedTopic}}
	}
	l.config.Topics, l.config.Patterns = map[string]Topic{name: topic}, nil
}

// environment is what a problem with a variable shows in place of the file.
const environment = "environment"

func (l *loader) seed(variable string) string {
	v, _ := l.env(variable)
	l.remember(variable, "", v, nil)
	return v
}

func (l *loader) variable(name, format string, args ...any) {
	l.problems = append(l.problems, Problem{File: environment, Key: name, Text: l.describe(format, args)})
}
