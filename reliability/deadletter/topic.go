package deadletter

import (
	"fmt"
	"strings"
)

// TopicName returns the name of a topic's dead-letter topic: the template with {topic} replaced. It returns an error if
// Kafka does not allow the name, or if it is the topic's own.
func TopicName(template, topic string) (string, error) {
	name := strings.ReplaceAll(template, "{topic}", topic)
	switch {
	case len(name) > maxTopic:
		return "", fmt.Errorf("dead-letter topic of %s: %q gives a name of %d characters, Kafka allows %d", topic, template, len(name), maxTopic)
	case !validTopic(name):
		return "", fmt.Errorf("dead-letter topic of %s: %q gives a name that Kafka does not allow: "+
			"write letters, digits, '.', '_', '-' and {topic}", topic, template)
	case name == topic:
		return "", fmt.Errorf("dead-letter topic of %s: %q gives the topic itself: write another name, such as {topic}-dlq", topic, template)
	}
	return name, nil
}

// maxTopic is the maximum length of a topic name (Kafka's class Topic).
const maxTopic = 249

// validTopic reports whether Kafka allows a topic of this name.
func validTopic(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > maxTopic {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
