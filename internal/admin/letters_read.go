package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/idempotency"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// The commands about dead letters read the dead-letter topics: a dead letter is there before any position passes its
// record, and no member needs to run.

// foundLetter is a dead letter without the content of its record. It stands for all copies of the dead letter, and has
// the coordinates of the newest.
type foundLetter struct {
	deadletter.Letter
	topic     string // coordinates of the newest copy
	partition int32
	offset    int64
	copies    int
	linked    bool
	state     LetterState
	why       string // the cause of the states unknown and foreign
}

// notLetters counts the records of a dead-letter topic that are no dead letters.
type notLetters struct {
	n     int64
	first string // the coordinates of the first one, and why it is none
}

// letterBook has the dead letters of some dead-letter topics, without repeats.
type letterBook struct {
	all    map[idempotency.Coordinates]*foundLetter
	count  int64 // repeats included
	others map[string]*notLetters
	absent []string // dead-letter topics that do not exist
}

// readLetters reads dead-letter topics from start to end. It keeps the dead letters that want accepts.
func readLetters(ctx context.Context, r *lookup.Reader, topics []string, want func(*deadletter.Letter) bool) (*letterBook, error) {
	book := &letterBook{all: map[idempotency.Coordinates]*foundLetter{}, others: map[string]*notLetters{}}
	for _, name := range topics {
		var topic connector.Topic
		err := r.Ask(func(ctx context.Context) (err error) { topic, err = r.Log.Topic(ctx, name); return err })
		if lookup.ReasonOf(err) == hold.TopicMissing {
			book.absent = append(book.absent, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("dead-letter topic %s: %w", name, err)
		}
		for _, id := range topic.Partitions {
			p := connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID, ID: id}
			err := r.Each(ctx, p, func(record *connector.Record) error { book.add(p, record, want); return nil })
			if err != nil {
				return nil, fmt.Errorf("dead-letter topic %v: %w", p, err)
			}
		}
	}
	return book, nil
}

// add adds a record of a dead-letter topic if it is a dead letter that want accepts; of several copies it keeps the
// newest. Other records of the topic are counted in b.others.
func (b *letterBook) add(p connector.Partition, r *connector.Record, want func(*deadletter.Letter) bool) {
	l, err := decode.ParseLetter(r)
	if err != nil {
		of := b.others[p.Topic]
		if of == nil {
			of = &notLetters{first: fmt.Sprintf("%v@%d: %v", p, r.Offset, err)}
			b.others[p.Topic] = of
		}
		of.n++
		return
	}
	if !want(&l) {
		return
	}
	b.count++
	f := &foundLetter{Letter: l, topic: p.Topic, partition: p.ID, offset: r.Offset, copies: 1, linked: l.Link.Key != ""}
	f.Key, f.Value, f.Headers = nil, nil, nil // they share the memory of the fetch result
	f.Source.Topic = strings.Clone(f.Source.Topic)
	if before := b.all[f.Source]; before != nil {
		f.copies += before.copies
		if before.LastFailure.After(f.LastFailure) {
			before.copies = f.copies
			return
		}
	}
	b.all[f.Source] = f
}

// newest returns the dead letters, the newest first.
func (b *letterBook) newest() []*foundLetter {
	return slices.SortedFunc(maps.Values(b.all), func(x, y *foundLetter) int {
		return cmp.Or(y.LastFailure.Compare(x.LastFailure), strings.Compare(x.Source.Topic, y.Source.Topic),
			cmp.Compare(x.Source.ID, y.Source.ID), cmp.Compare(x.Source.Offset, y.Source.Offset), slices.Compare(x.Source.TopicID[:], y.Source.TopicID[:]))
	})
}

// letterScope selects the dead letters of a command.
type letterScope struct {
	topics []string // dead-letter topics
	source string   // only dead letters of this topic, "" for all
}

// wants reports whether a dead letter is in the scope.
func (s *letterScope) wants(l *deadletter.Letter) bool {
	return s.source == "" || l.Source.Topic == s.source
}

// letterScopeOf returns the scope of a topic, which may itself be a dead-letter topic, or of all topics if it is "".
func letterScopeOf(ctx context.Context, a *Access, topic string) (*letterScope, error) {
	cfg := a.Config
	if topic == "" {
		names, err := a.topics(ctx, "")
		if err != nil {
			return nil, err
		}
		s := &letterScope{}
		for _, name := range names {
			s.topics = append(s.topics, cfg.LettersOf(name)...)
		}
		s.topics = slices.Compact(slices.Sorted(slices.Values(s.topics)))
		if len(s.topics) == 0 {
			return nil, fail.Usage(errors.New("no topic has bad_records: dead_letter, so there are no dead letters"))
		}
		return s, nil
	}
	t, meant, _ := cfg.Route(topic)
	switch of := cfg.LettersOf(topic); {
	case len(cfg.Sources(topic)) > 0 || meant && t.IsLetters():
		return &letterScope{topics: []string{topic}}, nil
	case !meant:
		return nil, fail.Usage(fmt.Errorf("topic %s is not in topics: write one of %s", topic, strings.Join(cfg.Meant(), ", ")))
	case len(of) == 0:
		return nil, fail.Usage(fmt.Errorf("topic %s has bad_records: %s, so it has no dead letters; name the dead-letter topic if there are old ones", topic, t.BadRecords))
	default:
		return &letterScope{of, topic}, nil
	}
}
