package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/internal/open"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
)

// LetterSearch selects a dead letter by the coordinates of its record, or by its own coordinates in a dead-letter
// topic.
type LetterSearch struct {
	Topic     string
	Partition int32
	Offset    int64
	TopicID   string        // the id of the record's topic; "" for any id
	Within    time.Duration // the time limit of each request to Kafka
}

// ErrNoLetter means that no dead letter is about a record.
var ErrNoLetter = errors.New("there is no dead letter")

// ErrNoLetters means that no topic of the pipeline makes dead letters.
var ErrNoLetters = errors.New("no topic has bad_records: dead_letter, so there are no dead letters")

// DeadLetter returns the selected dead letter. If several match, it returns the newest, and a note about the older
// ones.
func DeadLetter(ctx context.Context, a *Access, o LetterSearch) (letter *deadletter.Letter, notes []string, err error) {
	scope, err := letterScopeOf(ctx, a, o.Topic)
	if err != nil {
		return nil, nil, err
	}
	r, end, err := lookup.NewReader(ctx, a.Config, o.Within)
	if err != nil {
		return nil, nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer end()
	s := newLetterReader(a, r)
	defer s.close()
	return o.find(ctx, s, scope)
}

// find reads the dead-letter topics in scope and returns the newest dead letter about the record of the search. If
// there is none, it returns an error, which has the kind [fail.KindFound].
func (o *LetterSearch) find(ctx context.Context, s *letterReader, scope *letterScope) (*deadletter.Letter, []string, error) {
	var found *deadletter.Letter
	ids := map[idempotency.TopicID]bool{}
	for _, name := range scope.topics {
		topic, err := s.reader.Topic(name)
		if lookup.ReasonOf(err) == hold.TopicMissing {
			continue
		}
		if err != nil {
			return nil, nil, fail.Dependency(fmt.Errorf("kafka: dead-letter topic %s: %w", name, err))
		}
		for _, p := range topic.All() {
			if scope.source == "" && p.ID != o.Partition {
				continue
			}
			from, next := int64(0), int64(toEnd)
			if scope.source == "" { // without a source, the search has the coordinates of the dead letter itself
				from, next = o.Offset, o.Offset+1
			}
			err := s.each(ctx, p, from, next, func(offset int64, l *deadletter.Letter, notOne error) error {
				switch {
				case scope.source == "" && notOne != nil:
					return fail.Found(fmt.Errorf("%v@%d: %w", p, o.Offset, notOne))
				case notOne != nil || scope.source != "" && !o.means(l):
					return nil //nolint:nilerr // deadletters list shows records that are no dead letters
				}
				ids[l.Source.TopicID] = true
				if found == nil || !l.LastFailure.Before(found.LastFailure) {
					found = keep(l)
				}
				return nil
			})
			if err != nil {
				return nil, nil, err
			}
		}
	}
	if found == nil {
		err := fmt.Errorf("%w for %s:%d@%d", ErrNoLetter, o.Topic, o.Partition, o.Offset)
		if len(s.notes) > 0 {
			err = fmt.Errorf("%w; %s", err, strings.Join(s.notes, "; "))
		}
		return nil, nil, fail.Found(err)
	}
	var notes []string
	if len(ids) > 1 {
		notes = append(notes, fmt.Sprintf("there are dead letters of %d topics of this name; this is the newest, with topic id %s: name the topic id of another", len(ids), found.Source.TopicID))
	}
	return found, notes, nil
}

// means reports whether a dead letter is about the record of the search.
func (o *LetterSearch) means(l *deadletter.Letter) bool {
	return RecordPlace{Topic: o.Topic, TopicID: o.TopicID, Partition: o.Partition, Offset: o.Offset}.means(l)
}

// keep copies a dead letter, so that it stays valid after its fetch result is released.
func keep(l *deadletter.Letter) *deadletter.Letter {
	k := *l
	k.Key, k.Value, k.Headers = bytes.Clone(l.Key), bytes.Clone(l.Value), slices.Clone(l.Headers)
	for i := range k.Headers {
		k.Headers[i].Value = bytes.Clone(k.Headers[i].Value)
	}
	return &k
}

// largestObject bounds the size of an object that a dead letter links, in bytes.
const largestObject = 2 << 30

// WholeLetter returns a dead letter with the key, value and headers of its record. If the record was too large for the
// dead-letter topic, they come from an object in the bucket.
func WholeLetter(ctx context.Context, a *Access, l *deadletter.Letter) (*deadletter.Letter, error) {
	if l.Link.Key == "" {
		return l, nil
	}
	return linked(ctx, a.Config, l)
}

// linked returns a dead letter with its record from the bucket.
func linked(ctx context.Context, cfg *config.Config, l *deadletter.Letter) (*deadletter.Letter, error) {
	store, err := open.Store(ctx, cfg)
	if err != nil {
		return nil, fail.Dependency(err)
	}
	if closer, ok := store.(io.Closer); ok {
		defer func() { _ = closer.Close() }() // read only
	}
	if l.Link.Bytes > largestObject {
		return nil, fail.Found(fmt.Errorf("the dead letter links %d bytes, more than any record has", l.Link.Bytes))
	}
	body, err := store.Get(ctx, l.Link.Key, 0, l.Link.Bytes)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, fail.Found(fmt.Errorf("the value of the record is not in the bucket any more: %s", l.Link.Key))
	}
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("read %s: %w", l.Link.Key, err))
	}
	defer func() { _ = body.Close() }() // read only
	object, err := io.ReadAll(io.LimitReader(body, l.Link.Bytes+1))
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("read %s: %w", l.Link.Key, err))
	}
	whole, err := deadletter.Whole(*l, object)
	if err != nil {
		return nil, fail.Found(fmt.Errorf("%s: %w", l.Link.Key, err))
	}
	return &whole, nil
}
