package admin

import (
	"context"
	"fmt"
	"strings"

	"sluice/connector"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// LetterAt is a dead letter with its own coordinates and those of its record.
type LetterAt struct {
	Letter LetterPlace
	Record RecordPlace
}

func (p LetterPlace) String() string { return fmt.Sprintf("%s:%d@%d", p.Topic, p.Partition, p.Offset) }

// LettersAt returns the dead letters at the offset o.Offset of the dead-letter topic o.Topic: the one in o.Partition,
// or one in each partition that has one if o.Partition is negative. It returns [ErrNoLetter] if there are none.
func LettersAt(ctx context.Context, a *Access, o LetterSearch) (found []LetterAt, err error) {
	scope, err := letterScopeOf(ctx, a, o.Topic)
	if err != nil {
		return nil, err
	}
	if scope.source != "" {
		return nil, fail.Usage(fmt.Errorf("topic %s is not a dead-letter topic: its dead letters are in %s", o.Topic, strings.Join(scope.topics, ", ")))
	}
	r, end, err := lookup.NewReader(ctx, a.Config, o.Within)
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer end()
	topic, err := r.Topic(o.Topic)
	if err != nil && lookup.ReasonOf(err) != hold.TopicMissing {
		return nil, fail.Dependency(fmt.Errorf("kafka: dead-letter topic %s: %w", o.Topic, err))
	}
	s := newLetterReader(a, r)
	defer s.close()
	for _, p := range topic.All() {
		if o.Partition >= 0 && p.ID != o.Partition {
			continue
		}
		l, err := letterIn(ctx, s, p, o.Offset)
		if err != nil {
			return nil, err
		}
		if l != nil {
			s := l.Source
			found = append(found, LetterAt{LetterPlace{o.Topic, p.ID, o.Offset}, RecordPlace{Topic: s.Topic, TopicID: s.TopicID.String(), Partition: s.ID, Offset: s.Offset}})
		}
	}
	if len(found) == 0 {
		return nil, fail.Found(fmt.Errorf("%w at offset %d of topic %s", ErrNoLetter, o.Offset, o.Topic))
	}
	return found, nil
}

// letterIn returns the dead letter at an offset of a partition, nil if there is none.
func letterIn(ctx context.Context, s *letterReader, p connector.Partition, offset int64) (found *deadletter.Letter, err error) {
	err = s.each(ctx, p, offset, offset+1, func(_ int64, l *deadletter.Letter, notOne error) error {
		if notOne == nil {
			found = keep(l)
		}
		return nil
	})
	return found, err
}
