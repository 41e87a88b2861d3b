package admin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// The commands about dead letters read the dead-letter topics: a dead letter is there before any position passes its
// record, and no member needs to run. What retention has deleted from them they read from the letter tables.

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
	notes  []string // about dead letters that cannot be read
	free   int64    // memory left for more dead letters; without meaning if there is no bound
}

// size returns the approximate memory of a dead letter.
func (l *foundLetter) size() int64 {
	const fixed = 640 // the struct, and its place in the map
	texts := len(l.Source.Cluster) + len(l.Source.Topic) + len(l.Detail) + len(l.Member) + len(l.Correlation) + len(l.Batch) + len(l.Link.Key) + len(l.Link.SHA256)
	return fixed + int64(texts)
}

// readLetters reads dead-letter topics from start to end. It keeps the dead letters that want accepts. If they need more
// than bound bytes, it returns an error of [fail.KindRefused]; 0 is no bound.
func readLetters(ctx context.Context, s *letterReader, topics []string, bound int64, want func(*deadletter.Letter) bool) (*letterBook, error) {
	r := s.reader
	book := &letterBook{all: map[idempotency.Coordinates]*foundLetter{}, others: map[string]*notLetters{}, free: bound}
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
			err := s.each(ctx, p, 0, toEnd, func(offset int64, l *deadletter.Letter, notOne error) error {
				book.add(p, offset, l, notOne, want)
				if bound > 0 && book.free < 0 {
					return fail.Refused(fmt.Errorf("the dead letters need more than %d MiB of memory: select fewer by topic, code or time, or use the command line", bound>>20))
				}
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("dead-letter topic %v: %w", p, err)
			}
		}
	}
	book.notes = s.notes
	return book, nil
}

// add adds a record of a dead-letter topic if it is a dead letter that want accepts; of several copies it keeps the
// newest. Other records of the topic are counted in b.others.
func (b *letterBook) add(p connector.Partition, offset int64, l *deadletter.Letter, notOne error, want func(*deadletter.Letter) bool) {
	if notOne != nil {
		of := b.others[p.Topic]
		if of == nil {
			of = &notLetters{first: fmt.Sprintf("%v@%d: %v", p, offset, notOne)}
			b.others[p.Topic] = of
		}
		of.n++
		return
	}
	if !want(l) {
		return
	}
	b.count++
	f := &foundLetter{Letter: *l, topic: p.Topic, partition: p.ID, offset: offset, copies: 1, linked: l.Link.Key != ""}
	f.Key, f.Value, f.Headers, f.Trace = nil, nil, nil, "" // the content shares the memory of the fetch result
	f.Source.Topic = strings.Clone(f.Source.Topic)
	if before := b.all[f.Source]; before != nil {
		f.copies += before.copies
		if before.LastFailure.After(f.LastFailure) {
			before.copies = f.copies
			return
		}
		b.free += before.size()
	}
	b.free -= f.size()
	b.all[f.Source] = f
}

// newest returns the dead letters, the newest first.
func (b *letterBook) newest() []*foundLetter {
	return slices.SortedFunc(maps.Values(b.all), func(x, y *foundLetter) int {
		return cmp.Or(y.LastFailure.Compare(x.LastFailure), strings.Compare(x.Source.Topic, y.Source.Topic),
			cmp.Compare(x.Source.ID, y.Source.ID), cmp.Compare(x.Source.Offset, y.Source.Offset), slices.Compare(x.Source.TopicID[:], y.Source.TopicID[:]))
	})
}

// LetterKey is the place of a dead letter in a list by records. The zero key is before all.
type LetterKey struct {
	Topic     string
	Partition int32
	Offset    int64
	Rest      string // tells apart the records of several topics or clusters with these coordinates
}

func (l *foundLetter) key() LetterKey {
	sum := sha256.Sum256(append(l.Source.TopicID[:], l.Source.Cluster...)) // the cluster may be a text of any length
	return LetterKey{l.Source.Topic, l.Source.ID, l.Source.Offset, hex.EncodeToString(sum[:8])}
}

// compare orders dead letters by topic, partition and offset of their records.
func (l *foundLetter) compare(k LetterKey) int {
	if c := cmp.Or(strings.Compare(l.Source.Topic, k.Topic), cmp.Compare(l.Source.ID, k.Partition), cmp.Compare(l.Source.Offset, k.Offset)); c != 0 {
		return c
	}
	return strings.Compare(l.key().Rest, k.Rest)
}

// byRecord returns the dead letters in the order of [LetterKey].
func (b *letterBook) byRecord() []*foundLetter {
	return slices.SortedFunc(maps.Values(b.all), func(x, y *foundLetter) int {
		k := LetterKey{Topic: y.Source.Topic, Partition: y.Source.ID, Offset: y.Source.Offset}
		if x.Source.Topic == k.Topic && x.Source.ID == k.Partition && x.Source.Offset == k.Offset {
			k = y.key()
		}
		return x.compare(k)
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
			return nil, fail.Usage(ErrNoLetters)
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
