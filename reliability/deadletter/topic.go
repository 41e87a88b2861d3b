package deadletter

import (
	"fmt"
	"strings"
)

// TopicName returns the dead-letter topic of a topic: the template with {topic} filled in. It must be a name that Kafka
// allows and another one than the topic's own.
func TopicName(template, topic string) (string, error) {
	name := strings.ReplaceAll(template, "{topic}", topic)
	switch {
	case len(name) > maxTopic:
		return "", fmt.Errorf("dead-letter topic of %s: %q makes a name of %d characters, Kafka allows %d", topic, template, len(name), maxTopic)
	case !validTopic(name):
		return "", fmt.Errorf("dead-letter topic of %s: %q makes a name that Kafka does not allow: "+
			"write letters, digits, '.', '_', '-' and {topic}", topic, template)
	case name == topic:
		return "", fmt.Errorf("dead-letter topic of %s: %q makes the topic itself: write another name, such as {topic}-dlq", topic, template)
	}
	return name, nil
}

// maxTopic is the length of the longest topic name (Kafka's class Topic).
const maxTopic = 249

// validTopic tells whether Kafka allows a topic of this name.
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
