package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestOneTryIsOneRequest: only the guard retries a request. Neither kafka-go nor this package sends it again, whether
// the broker closes the connection or answers with a retriable error.
func TestOneTryIsOneRequest(t *testing.T) {
	for name, ask := range map[string]struct {
		key kmsg.Key
		do  func(context.Context, *Log, *Group) error
	}{
		"metadata": {kmsg.Metadata, func(ctx context.Context, l *Log, _ *Group) error {
			_, err := l.Topic(ctx, "t")
			return err
		}},
		"state": {kmsg.DescribeGroups, func(ctx context.Context, _ *Log, g *Group) error {
			_, err := g.State(ctx)
			return err
		}},
		"settings": {kmsg.DescribeConfigs, func(ctx context.Context, l *Log, _ *Group) error {
			_, err := l.client.TopicSettings(ctx, "t")
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *cluster) {
				w.create("t", 1)
				r, _ := w.readStaged(LogConfig{})
				g := NewGroup(r.client, GroupConfig{Group: "g", Topics: []string{"t"}}, slog.New(slog.DiscardHandler), nil)
				_ = ask.do(t.Context(), r.Log, g) // connects the client, so that it knows the brokers
				var requests atomic.Int32
				w.fake.ControlKey(ask.key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
					w.fake.KeepControl()
					requests.Add(1)
					return nil, errors.New("the connection is closed"), true
				})
				if err := ask.do(t.Context(), r.Log, g); err == nil {
					t.Error("no error")
				}
				if n := requests.Load(); n != 1 {
					t.Errorf("one try made %d requests", n)
				}
			})
		})
	}
}
