package admin

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"sluice/connector"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// The commands about dead letters read the dead-letter topics: a dead letter is there before any position passes its
// record, and no member needs to run. What retention has deleted from them they read from the letter tables.

// readLetters reads dead-letter topics from start to end. It keeps the dead letters that want accepts. If they need more
// than bound bytes, it returns an error of [fail.KindRefused]; 0 is no bound.
func readLetters(ctx context.Context, s *letterReader, topics []string, bound int64, want func(*deadletter.Letter) bool) (*letterBook, error) {
	book := newLetterBook(bound)
	for _, name := range topics {
		topic, err := s.reader.Topic(name)
		if lookup.ReasonOf(err) == hold.TopicMissing {
			book.absent = append(book.absent, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("dead-letter topic %s: %w", name, err)
		}
		for _, p := range topic.All() {
			book.dead = append(book.dead, p)
			err := s.each(ctx, p, 0, toEnd, func(offset int64, l *deadletter.Letter, notOne error) error {
				book.parse(p, offset, l, notOne, want)
				if book.full {
					return fail.Refused(fmt.Errorf("the dead letters need more than %d MiB of memory: select fewer by topic, code or time, or use the command line", bound>>20))
				}
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("dead-letter topic %v: %w", p, err)
			}
		}
	}
	book.settle()
	book.notes = s.notes
	return book, nil
}

// parse adds a record of a dead-letter topic if it is a dead letter that want accepts. It counts other records in b.others.
func (b *letterBook) parse(p connector.Partition, offset int64, l *deadletter.Letter, notOne error, want func(*deadletter.Letter) bool) {
	if notOne != nil {
		of := b.others[p.Topic]
		if of == nil {
			of = &notLetters{first: fmt.Sprintf("%v@%d: %v", p, offset, notOne)}
			b.others[p.Topic] = of
		}
		of.n++
		return
	}
	if want(l) {
		b.add(l, offset)
	}
}

// read calls do with the newest copies of some dead letters, in the order in which they are in the dead-letter topics:
// those of one source partition come in the order of their offsets. It leaves out those that neither the topic nor the
// letter table has any more. offset is the one in the dead-letter topic. The letter is valid until do returns.
func (b *letterBook) read(ctx context.Context, s *letterReader, letters iter.Seq[letterRef], do func(l *deadletter.Letter, offset int64) error) error {
	at := make([][]int64, len(b.dead))
	for ref := range letters {
		at[ref.l.dead] = append(at[ref.l.dead], ref.l.offset)
	}
	var topic connector.Topic
	for i, p := range b.dead {
		if len(at[i]) == 0 {
			continue
		}
		if topic.Name != p.Topic {
			var err error
			if topic, err = s.reader.Topic(p.Topic); err != nil {
				return fail.Dependency(fmt.Errorf("kafka: dead-letter topic %s: %w", p.Topic, err))
			}
		}
		if topic.ID != p.TopicID {
			return fail.Refused(fmt.Errorf("dead-letter topic %s was deleted or created again since its dead letters were read: try again", p.Topic))
		}
		slices.Sort(at[i])
		err := s.at(ctx, p, at[i], func(offset int64, l *deadletter.Letter, notOne error) error {
			if notOne != nil {
				return fail.Found(fmt.Errorf("%v@%d: %w", p, offset, notOne))
			}
			return do(l, offset)
		})
		if err != nil {
			return err
		}
		at[i] = nil
	}
	return nil
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
	if topic != "" {
		return letterScopeIn(a.Config, topic)
	}
	names, err := a.topics(ctx, "")
	if err != nil {
		return nil, err
	}
	s := &letterScope{}
	for _, name := range names {
		s.topics = append(s.topics, a.Config.LettersOf(name)...)
	}
	s.topics = slices.Compact(slices.Sorted(slices.Values(s.topics)))
	if len(s.topics) == 0 {
		return nil, fail.Usage(ErrNoLetters)
	}
	return s, nil
}

// letterScopeIn returns the scope of a topic. Its error wraps [ErrNoTopic] if the configuration does not cover the topic.
func letterScopeIn(cfg *config.Config, topic string) (*letterScope, error) {
	t, meant, _ := cfg.Route(topic)
	switch of := cfg.LettersOf(topic); {
	case len(cfg.Sources(topic)) > 0 || meant && t.IsLetters():
		return &letterScope{topics: []string{topic}}, nil
	case !meant:
		return nil, fail.Usage(NoTopic(cfg, topic))
	case len(of) == 0:
		return nil, fail.Usage(fmt.Errorf("topic %s has bad_records: %s, so it has no dead letters; name the dead-letter topic if there are old ones", topic, t.BadRecords))
	default:
		return &letterScope{of, topic}, nil
	}
}

// CheckLetterTopic returns an error if the configuration says that there are no dead letters of a topic. The error wraps
// [ErrNoTopic] if the configuration does not cover the topic.
func CheckLetterTopic(cfg *config.Config, topic string) error {
	_, err := letterScopeIn(cfg, topic)
	return err
}
