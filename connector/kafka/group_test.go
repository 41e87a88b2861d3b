package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

func TestGroup(t *testing.T) {
	for _, tt := range conformance {
		t.Run(tt.name, func(t *testing.T) { inBubble(t, tt.run, kfake.AllowAutoTopicCreation()) })
	}
}
