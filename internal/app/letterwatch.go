package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/health"
	"sluice/health/lettercount"
	"sluice/internal/config"
	"sluice/internal/lookup"
	"sluice/reliability"
	"sluice/reliability/bytepool"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

const (
	// pollLetters is how often the dead letters are counted at most. A watch rests restLetters times as long as it
	// worked, mostRest at most, so that it is never a load.
	pollLetters = 15 * time.Second
	restLetters = 20
	maxRest     = 10 * time.Minute
	// lettersEvery bounds one question to Kafka or to a table's log, and the wait for one answer with records.
	lettersEvery = 30 * time.Second
	// judgeLetters bounds the reading of a table for judgeAtOnce letters (fewer, if that takes too long), judgeBytes what it
	// holds of data files.
	judgeLetters = 15 * time.Minute
	judgeAtOnce  = 1 << 18
	judgeMin     = 1 << 10
	judgeBytes   = 16 << 20
	// keepLetters bounds what is known of letters, in bytes: more than six million that lie far apart, or any number side by
	// side. keepShare is the share of memory.limit that it may be.
	keepLetters = 32 << 20
	keepShare   = 16
	// maxStrange is how many topics are looked at that letters name, the configuration stands for, and Kafka does not have.
	maxStrange = 100
	// retryAfter is how long a table that could not tell which records have rows is left alone.
	retryAfter = 10 * time.Minute
)

// letterWatch counts the dead letters of the pipeline that stand: the metric sluice_unresolved_dead_letters. Each member counts
// all of them, from the dead-letter topics and the tables alone, as deadletters list does; so all come to the same number.
// It reads what is new since its last look, and touches nothing of the data path: its memory, its requests and its
// patience are its own.
type letterWatch struct {
	config *config.Config
	logger *slog.Logger
	reader *lookup.Reader
	tables objstore.Store
	guard  *reliability.Guard                      // before the tables
	match  func(context.Context) ([]string, error) // topics that match a pattern now; nil without patterns
	find   func(context.Context, ...string) (map[string]connector.Topic, map[string]error, error)
	stands func(table string) error // why nothing should be asked of a table now; "" stands for Kafka
	rate   *lettercount.Rate
	descs  letterDescs

	// Owned by look.
	tally     *lettercount.Tally
	followers map[string]*delta.Follower // by table
	ids       map[string]string          // by topic: the topics of its name that the table has positions of
	unlogged  map[string]time.Time       // topics whose table could not tell, since when
	atOnce    int                        // letters to judge
	matched   []string
	failing   reliability.FailureLog

	mu      sync.Mutex
	counted map[string]map[classify.Class]int64 // by topic; those that were counted once
	classes map[string]string                   // dead_letters.class by topic
	at      time.Time                           // of the last count without an error
	polled  bool
	trouble string
}

// watchLetters starts to count dead letters. It ends with ctx.
func (s *Member) watchLetters(ctx context.Context, background *sync.WaitGroup) error {
	w, end := newLetterWatch(ctx, s)
	s.letters.Store(w)
	if err := s.registry.Register(w); err != nil {
		end()
		return fmt.Errorf("metrics of dead letters: %w", err)
	}
	background.Go(func() {
		defer end()
		w.run(ctx)
	})
	return nil
}

// newLetterWatch returns a watch that can poll until end is called.
func newLetterWatch(ctx context.Context, s *Member) (w *letterWatch, end func()) {
	quiet := slog.New(slog.DiscardHandler) // the watch logs failures itself, in one line
	memory := min(max(s.pools.Fetch.Size()/4, 2<<20), 16<<20)
	reader, end := lookup.Through(ctx, s.client, kafka.LogConfig{Memory: bytepool.New(memory), PartitionBytes: int(memory / 8)}, s.config.Guard(), lettersEvery)
	w = &letterWatch{
		config: s.config, logger: s.logger, reader: reader, tables: s.store, rate: &s.letterRate, descs: newLetterDescs(),
		guard: reliability.NewGuard("store", s.config.Guard(), quiet, nil, objstore.ErrNotFound, objstore.ErrExists),
		find:  s.client.Topics, stands: s.breaker,
		tally: lettercount.New(min(keepLetters, s.config.Budget.Limit/keepShare)), followers: map[string]*delta.Follower{}, ids: map[string]string{}, unlogged: map[string]time.Time{}, atOnce: judgeAtOnce,
		counted: map[string]map[classify.Class]int64{}, classes: map[string]string{},
	}
	if len(s.config.Patterns) > 0 {
		w.match = s.group.Topics
	}
	return w, end
}

// breaker returns an error while a dependency fails too often for requests that can wait.
func (s *Member) breaker(table string) error {
	g := s.asking
	if table != "" {
		t := s.tables.get(table)
		if t == nil {
			return nil
		}
		g = t.storing
	}
	if st := g.Status(); st.Open {
		return cmp.Or(st.Err, errors.New("the circuit breaker is open"))
	}
	return nil
}

// run polls until ctx ends, first at once, then with pauses.
func (w *letterWatch) run(ctx context.Context) {
	for {
		began := time.Now()
		w.poll(ctx)
		if reliability.Wait(ctx, min(max(pollLetters, restLetters*time.Since(began)), maxRest)) != nil {
			return
		}
	}
}

// outlook is the result of one poll.
type outlook struct {
	topics   map[string]config.Topic // whose records become dead letters
	dead     map[string][]string     // dead-letter topics, with those of topics whose letters they take
	failures map[string]error        // by topic: it cannot be counted now
	notes    []string                // further notes for the operator
	counts   map[string]map[classify.Class]int64
}

// fail notes why topics cannot be counted. The first reason stays.
func (o *outlook) fail(err error, topics ...string) {
	for _, name := range topics {
		if o.failures[name] == nil {
			o.failures[name] = err
		}
	}
}

// poll counts once: first it reads what is new in the dead-letter topics, then it holds it against the tables.
func (w *letterWatch) poll(ctx context.Context) {
	o := &outlook{
		topics: map[string]config.Topic{}, dead: map[string][]string{}, failures: map[string]error{}, counts: map[string]map[classify.Class]int64{},
	}
	w.scope(ctx, o)
	w.readLetters(ctx, o)
	w.judge(ctx, o)
	if ctx.Err() != nil {
		return
	}
	w.publish(ctx, o)
}

// scope finds the topics and where their letters are.
func (w *letterWatch) scope(ctx context.Context, o *outlook) {
	if w.match != nil {
		asking, cancel := context.WithTimeout(ctx, lettersEvery)
		names, err := w.match(asking)
		cancel()
		if err == nil {
			w.matched = names
		} else {
			o.notes = append(o.notes, fmt.Sprintf("which topics match cannot be asked: %v", err))
		}
	}
	names := slices.Concat(w.config.TopicNames(), w.config.LaterTopics(), w.matched)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		for _, dead := range w.config.LettersOf(name) {
			if t, _, _ := w.config.Route(name); t.IsLetters() {
				o.dead[dead] = append(o.dead[dead], w.sourcesOf(dead)...)
			} else {
				o.topics[name] = t
				o.dead[dead] = append(o.dead[dead], name)
			}
		}
	}
}

// sourcesOf are the topics that can be named whose letters go to a dead-letter topic.
func (w *letterWatch) sourcesOf(dead string) (names []string) {
	for _, s := range w.config.Sources(dead) {
		if s.Name != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// publish shows the result of a poll. A count that failed keeps its last value.
func (w *letterWatch) publish(ctx context.Context, o *outlook) {
	var failed []string
	for _, topic := range slices.Sorted(maps.Keys(o.failures)) {
		if _, ours := o.topics[topic]; ours || o.counts[topic] != nil {
			failed = append(failed, topic)
		}
	}
	var said []string
	told := map[string]bool{}
	for _, topic := range failed {
		if text := o.failures[topic].Error(); !told[text] {
			told[text] = true
			said = append(said, fmt.Sprintf("topic %s: %s", topic, text))
		}
	}
	const most = 3
	if left := len(said) - most; left > 0 {
		said = append(said[:most], fmt.Sprintf("and %d more", left))
	}
	trouble := strings.Join(slices.Concat(said, o.notes), "; ")
	w.mu.Lock()
	counted := map[string]map[classify.Class]int64{}
	w.classes = map[string]string{}
	for topic, t := range o.topics {
		w.classes[topic] = t.DeadLetters.Class
		if before := w.counted[topic]; before != nil {
			counted[topic] = before
		}
	}
	for topic, counts := range o.counts {
		if o.failures[topic] == nil {
			counted[topic] = counts
		} else if before := w.counted[topic]; before != nil {
			counted[topic] = before
		}
	}
	w.counted, w.trouble = counted, trouble
	w.polled = w.polled || len(counted) > 0 || len(o.topics) == 0
	if trouble == "" {
		w.at = time.Now()
	}
	w.mu.Unlock()
	if trouble == "" {
		w.failing.Over(ctx, w.logger, "dead letters are counted again")
		return
	}
	w.failing.Failed(ctx, w.logger, slog.LevelWarn, "dead letters cannot be counted, sluice_unresolved_dead_letters is as it was counted last",
		"topics", failed[:min(len(failed), 10)], "err", trouble)
}

// report is what health shows.
func (w *letterWatch) report() *health.Letters {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &health.Letters{PerMinute: w.rate.PerMinute(time.Now()), Error: w.trouble}
	if !w.polled {
		return l
	}
	l.Unresolved = []health.UnresolvedLetters{}
	for _, topic := range slices.Sorted(maps.Keys(w.counted)) {
		for _, class := range slices.Sorted(maps.Keys(w.counted[topic])) {
			if n := w.counted[topic][class]; n > 0 {
				l.Unresolved = append(l.Unresolved, health.UnresolvedLetters{Topic: topic, Class: class.String(), Count: n})
			}
		}
	}
	return l
}
