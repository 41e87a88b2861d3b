package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/idempotency"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/deadletter"
	"sluice/sink/opslog"
)

// LetterQuery selects the dead letters to list.
type LetterQuery struct {
	Topic  string        // topic of the records, or a dead-letter topic; "" for all
	Since  time.Time     // zero for all
	Reason string        // reason code, "" for all
	Limit  int           // 0 for all
	States []LetterState // those to list; nil for all that may need an operator
	Within time.Duration // time limit of each request to Kafka
	// Paged lists in the order of records, beginning behind After, instead of the newest first.
	Paged bool
	After LetterKey
}

// ListedLetter is a dead letter in a list. It has no content of the record.
type ListedLetter struct {
	Topic       string      `json:"topic"`
	TopicID     string      `json:"topic_id"`
	Cluster     string      `json:"cluster"`
	Partition   int32       `json:"partition"`
	Offset      int64       `json:"offset"`
	State       LetterState `json:"state"`
	Why         string      `json:"why,omitempty"` // the cause of the states unknown and foreign
	Reason      string      `json:"reason"`
	Class       string      `json:"class"`
	Detail      string      `json:"detail"`
	Retries     int         `json:"retries"`
	Failed      *time.Time  `json:"failed_at"` // null if the dead letter has no time
	Member      string      `json:"member"`
	Correlation string      `json:"correlation_id"`
	Batch       string      `json:"batch_id"`
	Copies      int         `json:"copies"`
	Linked      bool        `json:"linked"` // the record is in the bucket
	Letter      LetterPlace `json:"letter"`
}

// OfOthers reports whether another program wrote the dead letter, so that it has no reason code of Sluice.
func (l *ListedLetter) OfOthers() bool { return l.Reason == string(deadletter.Unspecified) }

// LetterPlace has the coordinates of the newest copy of a dead letter.
type LetterPlace struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// LetterList has the counts of dead letters, and a list of some.
type LetterList struct {
	Topics       []string       `json:"dead_letter_topics"`
	Letters      int64          `json:"letters"`    // dead letters in the topics, repeats included
	Distinct     int            `json:"distinct"`   // records with a dead letter
	Unresolved   int            `json:"unresolved"` // includes Unknown, Replaying and Parked
	Unknown      int            `json:"unknown"`
	Replaying    int            `json:"replaying"`
	Parked       int            `json:"parked"`
	Acknowledged int            `json:"acknowledged"`
	Discarded    int            `json:"discarded"`
	Replayed     int            `json:"replayed"`
	Void         int            `json:"void"`
	Pending      int            `json:"pending"`
	Foreign      int            `json:"foreign"`
	Matching     int            `json:"matching"` // those that the query selects; the limit may leave some out
	Reasons      []ReasonCount  `json:"reasons"`  // those that the query selects by reason, the most frequent first
	Listed       []ListedLetter `json:"listed"`
	Notes        []string       `json:"notes"`
	Next         *LetterKey     `json:"-"` // the key of the last one in a page, nil if none follow
}

// ReasonCount is a number of dead letters with one reason code.
type ReasonCount struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// DeadLetters lists dead letters with the states of their records: the newest first, or a page in the order of records.
func DeadLetters(ctx context.Context, a *Access, q LetterQuery) (*LetterList, error) {
	scope, err := letterScopeOf(ctx, a, q.Topic)
	if err != nil {
		return nil, err
	}
	r, end, err := lookup.NewReader(ctx, a.Config, q.Within)
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer end()
	decisions, err := Operations(ctx, a)
	if err != nil {
		return nil, failedOperation(opslog.Entry{}, err)
	}
	book, err := judgedLetters(ctx, a, r, scope, decisions, q.selects)
	if err != nil {
		return nil, err
	}
	list, shown := book.list(scope, q)
	s := newLetterReader(a, r)
	s.brief = true
	defer s.close()
	return list, book.show(ctx, s, list, shown)
}

// selects reports whether the fields Since and Reason of the query select a dead letter. It ignores the other fields.
func (q *LetterQuery) selects(l *deadletter.Letter) bool {
	return !l.LastFailure.Before(q.Since) && (q.Reason == "" || string(l.Reason) == q.Reason)
}

// judgedLetters reads the dead letters of a scope that want accepts, with their states. decisions is the state of the
// operations log before the tables are read.
func judgedLetters(ctx context.Context, a *Access, r *lookup.Reader, scope *letterScope, decisions *opslog.State, want func(*deadletter.Letter) bool) (*letterBook, error) {
	s := newLetterReader(a, r)
	s.brief = true
	defer s.close()
	book, err := readLetters(ctx, s, scope.topics, a.LetterBytes, func(l *deadletter.Letter) bool { return scope.wants(l) && want(l) })
	if fail.Of(err) != 0 {
		return nil, err
	}
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	return book, book.judge(ctx, a.Config, r, decisions)
}

// list counts the dead letters by state and selects those to list.
func (b *letterBook) list(scope *letterScope, o LetterQuery) (*LetterList, []letterRef) {
	list := &LetterList{Topics: scope.topics, Letters: b.count, Distinct: b.distinct(), Listed: []ListedLetter{}, Reasons: []ReasonCount{}, Notes: []string{}}
	first, after := firstLetters{n: o.Limit, order: newestFirst}, 0
	if o.Paged {
		first.order = byRecord
	}
	whys, reasons := map[string]int64{}, make([]int, len(b.reasons.all))
	for _, s := range b.sources {
		for i := range s.letters {
			l := &s.letters[i]
			is := b.verdict(l)
			list.count(is.state)
			if is.state == LetterUnknown || is.state == LetterForeign {
				whys[is.why]++
			}
			if o.States == nil && !is.state.listed() || o.States != nil && !slices.Contains(o.States, is.state) {
				continue
			}
			list.Matching++
			reasons[l.reason]++
			if ref := (letterRef{s, l}); !o.Paged || ref.compare(o.After) > 0 {
				after++
				first.add(ref)
			}
		}
	}
	shown := first.sorted()
	if o.Paged && len(shown) < after {
		list.Next = new(shown[len(shown)-1].key())
	}
	for i, n := range reasons {
		if n > 0 {
			list.Reasons = append(list.Reasons, ReasonCount{string(b.reasons.all[i]), n})
		}
	}
	slices.SortFunc(list.Reasons, func(x, y ReasonCount) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), strings.Compare(x.Reason, y.Reason))
	})
	for _, name := range b.absent {
		list.note("topic %s does not exist yet: it comes with the first dead letter", name)
	}
	for _, name := range scope.topics {
		if of := b.others[name]; of != nil {
			list.note("%s of topic %s: no dead letter, first at %s", Counting(of.n, "record"), name, of.first)
		}
	}
	list.Notes = append(list.Notes, b.notes...)
	for why, n := range whys {
		list.note("%s: %s", Counting(n, "dead letter"), why)
	}
	slices.Sort(list.Notes)
	if left := list.Matching - len(shown); left > 0 && !o.Paged {
		list.note("%d more are not listed: write --limit, --since or --code", left)
	}
	return list, shown
}

// show adds dead letters to the list, with the data in the book and the data that it reads again from the dead-letter
// topics or the letter tables. A dead letter that neither has any more is listed with the data in the book alone.
func (b *letterBook) show(ctx context.Context, s *letterReader, list *LetterList, shown []letterRef) error {
	type at struct {
		idempotency.Coordinates
		offset int64
	}
	places := make(map[at]int, len(shown))
	for i, ref := range shown {
		places[at{idempotency.Coordinates{Partition: ref.of.Partition, Offset: ref.l.record}, ref.l.offset}] = i
		list.Listed = append(list.Listed, b.shown(ref))
	}
	left := len(shown)
	err := b.read(ctx, s, slices.Values(shown), func(l *deadletter.Letter, offset int64) error {
		i, ok := places[at{l.Source, offset}]
		if ok {
			list.Listed[i].add(l)
			left--
		}
		return nil
	})
	if err == nil && left > 0 {
		list.note("%s deleted by the retention of the dead-letter topic since: only coordinates, state and reason are listed", Counting(int64(left), "dead letter"))
	}
	return err
}

// count counts a dead letter by its state.
func (list *LetterList) count(s LetterState) {
	if s.counts() {
		list.Unresolved++
	}
	switch s {
	case LetterUnresolved:
	case LetterUnknown:
		list.Unknown++
	case LetterVoid:
		list.Void++
	case LetterPending:
		list.Pending++
	case LetterForeign:
		list.Foreign++
	case LetterReplaying:
		list.Replaying++
	case LetterParked:
		list.Parked++
	case LetterAcknowledged:
		list.Acknowledged++
	case LetterDiscarded:
		list.Discarded++
	case LetterReplayed:
		list.Replayed++
	}
}

// Counting returns a number with its noun: "1 record", "2 records".
func Counting(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.FormatInt(n, 10) + " " + noun
}

func (list *LetterList) note(format string, args ...any) {
	list.Notes = append(list.Notes, fmt.Sprintf(format, args...))
}

// shown returns a dead letter with the data in the book; [ListedLetter.add] adds the rest.
func (b *letterBook) shown(ref letterRef) ListedLetter {
	s, l := ref.of, ref.l
	is, dead := b.verdict(l), b.dead[l.dead]
	return ListedLetter{
		Topic: s.Topic, TopicID: s.TopicID.String(), Cluster: s.Cluster, Partition: s.ID, Offset: l.record,
		State: is.state, Why: is.why, Reason: string(b.reasons.all[l.reason]), Failed: l.failedAt(), Copies: int(l.copies),
		Letter: LetterPlace{dead.Topic, dead.ID, l.offset},
	}
}

// add sets the fields that the book does not have. It copies texts, which share the memory of the fetch result.
func (l *ListedLetter) add(of *deadletter.Letter) {
	l.Class, l.Detail, l.Retries = of.Class.String(), strings.Clone(of.Detail), of.Retries
	l.Member, l.Correlation, l.Batch = strings.Clone(of.Member), strings.Clone(of.Correlation), strings.Clone(of.Batch)
	l.Linked = of.Link.Key != ""
	if !of.LastFailure.IsZero() {
		l.Failed = new(of.LastFailure.UTC())
	}
}
