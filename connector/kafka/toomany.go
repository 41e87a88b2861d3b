package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"sluice/reliability/hold"
)

// listedBeyond is how many topics beyond a limit are shown as holds; a cluster with a hundred thousand topics must not
// cause as many holds and metric series. The detail of each hold says how many topics there are in total.
const listedBeyond = 100

// limit removes the excess topics from seen. Topics with committed offsets come first, so that a new topic never
// displaces one that the pipeline reads. Then come the topics that this member subscribed to last, whose first offsets
// are not committed yet; then all others by name. All members see the same committed offsets, so they agree on the
// topics that have one.
func (g *Group) limit(ctx context.Context, seen *pollResult) error {
	if g.cfg.Beyond == nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(seen.topics))
	if len(g.cfg.Beyond(names)) == 0 {
		return nil
	}
	committed, err := g.committed(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock()
	subscribed := g.within
	g.mu.Unlock()
	rank := func(name string) int {
		switch {
		case committed[name]:
			return 0
		case subscribed[name]:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	seen.beyond = g.cfg.Beyond(names)
	for name := range seen.beyond {
		delete(seen.topics, name)
	}
	return nil
}

// committed returns the names of the topics for which the group has a committed offset.
func (g *Group) committed(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, g.client.timeout())
	defer cancel()
	doing := "reading the offsets of group " + g.cfg.Group
	response, err := g.client.requests().OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: g.cfg.Group})
	if err == nil {
		err = response.Error
	}
	if errors.Is(err, kafka.GroupIdNotFound) {
		return nil, nil //nolint:nilnil // a new group has no offsets
	}
	if err != nil {
		return nil, AsHold(doing, fmt.Errorf("offsets of group %s: %w", g.cfg.Group, err))
	}
	found := map[string]bool{}
	for name, partitions := range response.Topics {
		found[name] = slices.ContainsFunc(partitions, func(p kafka.OffsetFetchPartition) bool { return p.Error == nil && p.CommittedOffset >= 0 })
	}
	return found, nil
}

// held returns a hold for each excess topic, but at most for the first [listedBeyond] by name.
func (s *pollResult) held() []Absent {
	var all []Absent
	for _, name := range slices.Sorted(maps.Keys(s.beyond)) {
		if len(all) == listedBeyond {
			break
		}
		all = append(all, Absent{Topic: name, Reason: hold.TooManyTopics, Detail: s.beyond[name], Since: time.Now()})
	}
	return all
}

// logBeyond logs for each exceeded limit how many topics are beyond it.
func (g *Group) logBeyond(ctx context.Context, seen pollResult) {
	details := map[string]int{}
	for _, detail := range seen.beyond {
		details[detail]++
	}
	for _, detail := range slices.SortedFunc(maps.Keys(details), strings.Compare) {
		g.failing(detail).Failed(ctx, g.logger, slog.LevelError, "topics beyond max_topics are not read", "topics", details[detail], "reason", string(hold.TooManyTopics), "detail", detail)
	}
}

// Survey returns the names of the configured topics that exist now, sorted: listed, optional and matching ones.
// Excess topics are left out and returned as holds. Survey joins no group. A listed topic that is refused is an
// error.
func (g *Group) Survey(ctx context.Context) (names []string, beyond []Absent, err error) {
	asked := g.names()
	seen, err := g.client.wanted(ctx, asked, g.cfg.Matches)
	if err == nil {
		err = g.limit(ctx, &seen)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, name := range asked {
		if err := seen.refused[name]; err != nil {
			return nil, nil, err
		}
	}
	return slices.Sorted(maps.Keys(seen.topics)), seen.held(), nil
}

// Topics returns the names of [Group.Survey].
func (g *Group) Topics(ctx context.Context) ([]string, error) {
	names, _, err := g.Survey(ctx)
	return names, err
}
