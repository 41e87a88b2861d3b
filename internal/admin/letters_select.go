package admin

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"sluice/idempotency/offsets"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/deadletter"
	"sluice/sink/opslog"
)

// LetterSelection selects dead letters for a decision or a replay: those of Records, or without Records all that match
// the query.
type LetterSelection struct {
	Records []RecordPlace // the records of the dead letters; if not empty, the query selects nothing more, except by States
	LetterQuery
	Until time.Time // only dead letters that failed before it; zero for all
}

// RecordPlace has the coordinates of a record. TopicID is "" for any.
type RecordPlace struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id,omitempty"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

func (p RecordPlace) String() string { return fmt.Sprintf("%s:%d@%d", p.Topic, p.Partition, p.Offset) }

// means reports whether a dead letter is about the record.
func (p RecordPlace) means(l *deadletter.Letter) bool {
	return l.Source.Topic == p.Topic && l.Source.ID == p.Partition && l.Source.Offset == p.Offset &&
		(p.TopicID == "" || l.Source.TopicID.String() == p.TopicID)
}

// selects reports whether a dead letter is selected, apart from its state.
func (q *LetterSelection) selects(l *deadletter.Letter) bool {
	if len(q.Records) > 0 {
		return slices.ContainsFunc(q.Records, func(p RecordPlace) bool { return p.means(l) })
	}
	return q.LetterQuery.selects(l) && (q.Until.IsZero() || l.LastFailure.Before(q.Until))
}

// chosenLetters has those of the selected dead letters that are in a state which the action accepts.
type chosenLetters struct {
	*letterBook
	n         int
	decisions *opslog.State // as of before the tables were read
	notes     []string
}

// choose reads the selected dead letters with their states, and returns those in an accepted state. If the selection
// names records, choose returns an error if one of them has no dead letter, or a dead letter in another state. Only the
// state in already, which the action would set, causes no error: such a dead letter is left out.
func (q *LetterSelection) choose(ctx context.Context, a *Access, r *lookup.Reader, already LetterState, accepted ...LetterState) (*chosenLetters, error) {
	scope, err := q.scope(ctx, a)
	if err != nil {
		return nil, err
	}
	log, err := a.operations(ctx)
	if err != nil {
		return nil, err
	}
	c, left := &chosenLetters{}, make(map[LetterState]int)
	if c.decisions, err = log.State(ctx); err != nil {
		return nil, failedOperation(opslog.Entry{}, err)
	}
	if c.letterBook, err = judgedLetters(ctx, a, r, scope, c.decisions, q.selects); err != nil {
		return nil, err
	}
	for _, name := range c.absent {
		c.notes = append(c.notes, fmt.Sprintf("topic %s does not exist yet", name))
	}
	c.notes = append(c.notes, c.letterBook.notes...)
	accepts := func(state LetterState) bool {
		return slices.Contains(accepted, state) && (q.States == nil || slices.Contains(q.States, state))
	}
	if err := q.checkNamed(c.letterBook, already, accepted, accepts); err != nil {
		return nil, err
	}
	c.keep(func(_ *sourceLetters, l *foundLetter) bool {
		state := c.verdict(l).state
		if !accepts(state) {
			left[state]++
			return false
		}
		c.n++
		return true
	})
	for _, state := range LetterStates() {
		if n := left[state]; n > 0 {
			c.notes = append(c.notes, fmt.Sprintf("left out: %d %s", n, state))
		}
	}
	return c, nil
}

// checkNamed checks the records that the selection names. It returns an error if one has no dead letter, or if its dead
// letter is in a state that is neither accepted nor the one in already.
func (q *LetterSelection) checkNamed(b *letterBook, already LetterState, accepted []LetterState, accepts func(LetterState) bool) error {
	if len(q.Records) == 0 {
		return nil
	}
	found := map[RecordPlace]int{}
	for _, s := range b.inOrder() {
		for i := range s.letters {
			place, is := RecordPlace{Topic: s.Topic, Partition: s.ID, Offset: s.letters[i].record}, b.verdict(&s.letters[i])
			found[place]++
			switch {
			case found[place] > 1 && !q.withTopicID(place):
				return fail.Refused(fmt.Errorf("there are dead letters of several topics with the name %s at %v: name the topic id", place.Topic, place))
			case !accepts(is.state) && is.state != already:
				return fail.Refused(fmt.Errorf("%v is %s%s: this is for dead letters that are %s", place, is.state, because(is.why), listStates(accepted)))
			}
		}
	}
	for _, p := range q.Records {
		if found[RecordPlace{Topic: p.Topic, Partition: p.Partition, Offset: p.Offset}] == 0 {
			return fail.Found(fmt.Errorf("%w for %v", ErrNoLetter, p))
		}
	}
	return nil
}

func (q *LetterSelection) withTopicID(place RecordPlace) bool {
	return slices.ContainsFunc(q.Records, func(p RecordPlace) bool {
		return p.TopicID != "" && p.Topic == place.Topic && p.Partition == place.Partition && p.Offset == place.Offset
	})
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

func listStates(states []LetterState) string {
	var texts []string
	for _, s := range states {
		texts = append(texts, string(s))
	}
	return strings.Join(texts, ", ")
}

// scope returns the dead-letter topics that the selection may need.
func (q *LetterSelection) scope(ctx context.Context, a *Access) (*letterScope, error) {
	if len(q.Records) == 0 {
		return letterScopeOf(ctx, a, q.Topic)
	}
	all := &letterScope{}
	for _, p := range q.Records {
		of, err := letterScopeOf(ctx, a, p.Topic)
		if err != nil {
			return nil, err
		}
		if of.source == "" {
			return nil, fail.Usage(fmt.Errorf("%v is in a dead-letter topic: name the dead letter by its record, as deadletters list shows it", p))
		}
		all.topics = append(all.topics, of.topics...)
	}
	all.topics = slices.Compact(slices.Sorted(slices.Values(all.topics)))
	return all, nil
}

// entries returns the chosen dead letters for entries of the operations log, each with at most [opslog.MaxLetters].
func (c *chosenLetters) entries() (all [][]opslog.Letters) {
	var entry []opslog.Letters
	room := opslog.MaxLetters
	for _, s := range c.inOrder() {
		for rest := s.letters; len(rest) > 0; {
			n := min(len(rest), room)
			var at offsets.Packer
			for _, l := range rest[:n] {
				at.Add(l.record)
			}
			entry = append(entry, opslog.LettersOf(s.Partition, at.Done()))
			rest, room = rest[n:], room-n
			if room == 0 {
				all, entry, room = append(all, entry), nil, opslog.MaxLetters
			}
		}
	}
	if len(entry) > 0 {
		all = append(all, entry)
	}
	return all
}

// has reports whether a chosen dead letter has the state.
func (c *chosenLetters) has(state LetterState) bool {
	for _, s := range c.sources {
		if slices.ContainsFunc(s.letters, func(l foundLetter) bool { return c.verdict(&l).state == state }) {
			return true
		}
	}
	return false
}

// topics returns the topics of the chosen dead letters, sorted.
func (c *chosenLetters) topics() (topics []string) {
	for p := range c.sources {
		topics = append(topics, p.Topic)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// tables returns the tables of the chosen dead letters, sorted.
func (c *chosenLetters) tables(a *Access) (paths []string) {
	for _, topic := range c.topics() {
		if t, _, err := a.Config.Route(topic); err == nil && !slices.Contains(paths, t.Table) {
			paths = append(paths, t.Table)
		}
	}
	slices.Sort(paths)
	return paths
}

// contents calls each with the chosen dead letters and the content of their records, in the order of [letterBook.read].
// The letter is valid until each returns.
func (c *chosenLetters) contents(ctx context.Context, a *Access, r *lookup.Reader, each func(*deadletter.Letter) error) error {
	s := newLetterReader(a, r)
	defer s.close()
	return c.read(ctx, s, c.all(), func(l *deadletter.Letter, _ int64) error {
		whole, err := WholeLetter(ctx, a, l)
		if err != nil {
			return err
		}
		return each(whole)
	})
}

// all yields the chosen dead letters.
func (c *chosenLetters) all() iter.Seq[letterRef] {
	return func(yield func(letterRef) bool) {
		for _, s := range c.sources {
			for i := range s.letters {
				if !yield(letterRef{s, &s.letters[i]}) {
					return
				}
			}
		}
	}
}

// ExportLetters calls each with the selected dead letters in the order of the dead-letter topics, with the content of
// their records. The letter is valid until each returns.
func ExportLetters(ctx context.Context, a *Access, q LetterSelection, each func(*deadletter.Letter) error) (notes []string, err error) {
	r, end, err := lookup.NewReader(ctx, a.Config, q.Within)
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer end()
	accepted := LetterStates()
	if q.States == nil && len(q.Records) == 0 {
		accepted = slices.DeleteFunc(accepted, func(s LetterState) bool { return !s.listed() })
	}
	chosen, err := q.choose(ctx, a, r, "", accepted...)
	if err != nil {
		return nil, err
	}
	return chosen.notes, chosen.contents(ctx, a, r, each)
}
