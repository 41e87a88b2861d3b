package opslog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/idempotency"
	"sluice/idempotency/offsets"
)

// storedState is a [State] as JSON, without its head. Equal states have equal JSON, because all lists are sorted.
type storedState struct {
	Pauses   []Paused                   `json:"pauses,omitempty"`
	Floods   map[string]FloodAllowance  `json:"floods,omitempty"`
	Forget   []storedBelow              `json:"forget,omitempty"`
	Rechecks []storedRequest            `json:"rechecks,omitempty"`
	Flushes  []storedRequest            `json:"flushes,omitempty"`
	Letters  []storedLetters            `json:"letters,omitempty"`
	Open     map[int64]OpenReplay       `json:"open,omitempty"`
	Topical  map[int64]OpenReplay       `json:"topical,omitempty"`
	Changed  int64                      `json:"letters_changed,omitempty"`
	Moved    map[string]int64           `json:"moved,omitempty"`
	Moving   map[int64]storedMove       `json:"moving,omitempty"`
	Once     map[string]storedPerformed `json:"once,omitempty"`
}

type storedBelow struct {
	Topic string `json:"topic"`
	Below
}

type storedRequest struct {
	Target Target `json:"target"`
	Seq    int64  `json:"seq"`
}

type storedLetters struct {
	Cluster      string                  `json:"cluster,omitempty"`
	Topic        string                  `json:"topic"`
	TopicID      string                  `json:"topic_id"`
	Partition    int32                   `json:"partition"`
	Discarded    offsets.Set             `json:"discarded"`
	Acknowledged offsets.Set             `json:"acknowledged"`
	Replayed     offsets.Set             `json:"replayed"`
	Reproduced   offsets.Set             `json:"reproduced"`
	Failed       [MaxReplays]offsets.Set `json:"failed"`
}

type storedMove struct {
	Since    time.Time `json:"since"`
	Operator string    `json:"operator"`
	Command  string    `json:"command"`
	Topics   []string  `json:"topics"`
}

type storedPerformed struct {
	Seq     int64     `json:"seq"`
	Request string    `json:"request"`
	At      time.Time `json:"at"`
}

// canonical returns the JSON of the state without its head. States with the same effect have the same bytes.
func (s *State) canonical() ([]byte, error) {
	stored := storedState{
		Pauses: s.Pauses(), Floods: s.floods, Rechecks: storedRequests(s.rechecks), Flushes: storedRequests(s.flushes),
		Open: s.letters.open, Topical: s.letters.topical, Changed: s.letters.changed, Moved: s.moved,
		Moving: map[int64]storedMove{}, Once: map[string]storedPerformed{},
	}
	for of, offset := range s.forget {
		stored.Forget = append(stored.Forget, storedBelow{of.topic, Below{of.topicID, of.partition, offset}})
	}
	slices.SortFunc(stored.Forget, func(a, b storedBelow) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), strings.Compare(a.TopicID, b.TopicID), cmp.Compare(a.Partition, b.Partition))
	})
	for _, p := range slices.SortedFunc(maps.Keys(s.letters.sources), idempotency.Partition.Compare) {
		l := s.letters.sources[p]
		stored.Letters = append(stored.Letters, storedLetters{
			Cluster: p.Cluster, Topic: p.Topic, TopicID: p.TopicID.String(), Partition: p.ID, Discarded: l.Discarded,
			Acknowledged: l.Acknowledged, Replayed: l.Replayed, Reproduced: l.Reproduced, Failed: l.Failed,
		})
	}
	for seq, m := range s.moving {
		stored.Moving[seq] = storedMove{m.Since, m.Operator, m.Command, slices.Sorted(maps.Keys(m.topics))}
	}
	for key, p := range s.once {
		stored.Once[key] = storedPerformed{p.seq, p.request, p.at}
	}
	b, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("encode the state: %w", err)
	}
	return b, nil
}

// state returns the state without its head.
func (stored storedState) state() (*State, error) {
	s := &State{
		floods: stored.Floods, rechecks: requestsOf(stored.Rechecks), flushes: requestsOf(stored.Flushes), moved: stored.Moved,
		letters: letterBook{open: stored.Open, topical: stored.Topical, changed: stored.Changed, sources: map[idempotency.Partition]LetterStates{}},
		pauses:  map[Target]Paused{}, forget: map[source]int64{}, moving: map[int64]Moving{}, once: map[string]performed{},
	}
	for _, p := range stored.Pauses {
		s.pauses[p.Target] = p
	}
	for _, f := range stored.Forget {
		s.forget[source{f.Topic, f.TopicID, f.Partition}] = f.Offset
	}
	for _, l := range stored.Letters {
		id, err := idempotency.ParseTopicID(l.TopicID)
		if err != nil {
			return nil, err
		}
		s.letters.sources[idempotency.Partition{Cluster: l.Cluster, Topic: l.Topic, TopicID: id, ID: l.Partition}] = LetterStates{
			Discarded: l.Discarded, Acknowledged: l.Acknowledged, Replayed: l.Replayed, Reproduced: l.Reproduced, Failed: l.Failed,
		}
	}
	for seq, m := range stored.Moving {
		topics := map[string]bool{}
		for _, topic := range m.Topics {
			topics[topic] = true
		}
		s.moving[seq] = Moving{Since: m.Since, Operator: m.Operator, Command: m.Command, topics: topics}
	}
	for key, p := range stored.Once {
		s.once[key] = performed{p.Seq, p.Request, p.At}
	}
	return s, nil
}

func storedRequests(requests map[Target]int64) (all []storedRequest) {
	for _, t := range slices.SortedFunc(maps.Keys(requests), compareTargets) {
		all = append(all, storedRequest{t, requests[t]})
	}
	return all
}

func requestsOf(all []storedRequest) map[Target]int64 {
	requests := map[Target]int64{}
	for _, r := range all {
		requests[r.Target] = r.Seq
	}
	return requests
}
