package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/connector"
	"sluice/idempotency"
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

// chosenLetters are selected dead letters with the states that an action accepts.
type chosenLetters struct {
	letters   []*foundLetter // in the order of their records
	decisions *opslog.State  // as of before the tables were read
	notes     []string
}

// choose reads the selected dead letters with their states, and returns those in an accepted state. If the selection
// names records, it refuses a record without a dead letter, and one whose dead letter is in another state. A dead
// letter in the state already, which the action itself would set, is only left out.
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
	book, err := judgedLetters(ctx, a, r, scope, c.decisions, q.selects)
	if err != nil {
		return nil, err
	}
	for _, name := range book.absent {
		c.notes = append(c.notes, fmt.Sprintf("topic %s does not exist yet", name))
	}
	c.notes = append(c.notes, book.notes...)
	found := map[RecordPlace]int{}
	for _, l := range book.bySource() {
		place := RecordPlace{Topic: l.Source.Topic, Partition: l.Source.ID, Offset: l.Source.Offset}
		found[place]++
		switch {
		case len(q.Records) > 0 && found[place] > 1 && !q.withTopicID(place):
			return nil, fail.Refused(fmt.Errorf("there are dead letters of several topics with the name %s at %v: name the topic id", place.Topic, place))
		case slices.Contains(accepted, l.state) && (q.States == nil || slices.Contains(q.States, l.state)):
			c.letters = append(c.letters, l)
		case len(q.Records) > 0 && l.state != already:
			return nil, fail.Refused(fmt.Errorf("%v is %s%s: this is for dead letters that are %s", place, l.state, because(l.why), listStates(accepted)))
		default:
			left[l.state]++
		}
	}
	for _, p := range q.Records {
		if found[RecordPlace{Topic: p.Topic, Partition: p.Partition, Offset: p.Offset}] == 0 {
			return nil, fail.Found(fmt.Errorf("%w for %v", ErrNoLetter, p))
		}
	}
	for _, state := range LetterStates() {
		if n := left[state]; n > 0 {
			c.notes = append(c.notes, fmt.Sprintf("left out: %d %s", n, state))
		}
	}
	return c, nil
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

// bySource returns the dead letters in the order of their records.
func (b *letterBook) bySource() []*foundLetter {
	return slices.SortedFunc(maps.Values(b.all), func(x, y *foundLetter) int {
		return cmp.Or(x.Source.Compare(y.Source.Partition), cmp.Compare(x.Source.Offset, y.Source.Offset))
	})
}

// entries returns the chosen dead letters for entries of the operations log, each with at most [opslog.MaxLetters].
func (c *chosenLetters) entries() (all [][]opslog.Letters) {
	for chunk := range slices.Chunk(c.letters, opslog.MaxLetters) {
		at := map[idempotency.Partition][]int64{}
		for _, l := range chunk {
			at[l.Source.Partition] = append(at[l.Source.Partition], l.Source.Offset)
		}
		var letters []opslog.Letters
		for _, p := range slices.SortedFunc(maps.Keys(at), idempotency.Partition.Compare) {
			letters = append(letters, opslog.LettersOf(p, offsets.Of(at[p]...)))
		}
		all = append(all, letters)
	}
	return all
}

// topics returns the topics of the chosen dead letters.
func (c *chosenLetters) topics() (topics []string) {
	for _, l := range c.letters {
		if !slices.Contains(topics, l.Source.Topic) {
			topics = append(topics, l.Source.Topic)
		}
	}
	return topics
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

// contents calls each with the chosen dead letters and the content of their records, in the order of the dead-letter
// topics: dead letters of one source partition come in the order of their offsets. The letter is valid until each
// returns.
func (c *chosenLetters) contents(ctx context.Context, a *Access, r *lookup.Reader, each func(*deadletter.Letter) error) error {
	type copyAt struct {
		topic     string
		partition int32
		offset    int64
	}
	chosen := map[copyAt]bool{}
	spans := map[string]map[int32]*Interval{}
	for _, l := range c.letters {
		chosen[copyAt{l.topic, l.partition, l.offset}] = true
		of := spans[l.topic]
		if of == nil {
			of = map[int32]*Interval{}
			spans[l.topic] = of
		}
		if s := of[l.partition]; s == nil {
			of[l.partition] = &Interval{l.offset, l.offset + 1}
		} else {
			s.From, s.Next = min(s.From, l.offset), max(s.Next, l.offset+1)
		}
	}
	source := newLetterReader(a, r)
	defer source.close()
	for _, name := range slices.Sorted(maps.Keys(spans)) {
		var topic connector.Topic
		if err := r.Ask(func(ctx context.Context) (err error) { topic, err = r.Log.Topic(ctx, name); return err }); err != nil {
			return fail.Dependency(fmt.Errorf("kafka: dead-letter topic %s: %w", name, err))
		}
		for _, id := range slices.Sorted(maps.Keys(spans[name])) {
			p, s := connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID, ID: id}, spans[name][id]
			err := source.each(ctx, p, s.From, s.Next, func(offset int64, l *deadletter.Letter, notOne error) error {
				if !chosen[copyAt{name, id, offset}] {
					return nil
				}
				if notOne != nil {
					return fail.Found(fmt.Errorf("%v@%d: %w", p, offset, notOne))
				}
				whole, err := WholeLetter(ctx, a, l)
				if err != nil {
					return err
				}
				return each(whole)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
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
