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
	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/internal/config"
	"sluice/internal/lookup"
	"sluice/reliability"
	"sluice/reliability/bytepool"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

const (
	// pollLetters is the shortest pause between two counts of the dead letters. To keep its load low, the watch pauses
	// restLetters times as long as the last count spent on tables, but at most maxRest. The time in which it read
	// dead-letter topics does not count: each dead letter is read once, and slowly (see pace).
	pollLetters = 15 * time.Second
	restLetters = 20
	maxRest     = 10 * time.Minute
	// lettersTimeout bounds one request to Kafka, and the wait for one fetch result. One read of the new commits of a
	// table may take four times as long.
	lettersTimeout = 30 * time.Second
	// judgeLetters bounds the time of one read of a table, which finds which dead letters have rows, and judgeBytes its
	// memory for data files. One read judges at most judgeAtOnce dead letters. After a read that took too long, that
	// number falls to an eighth, but not below judgeMin.
	judgeLetters = 15 * time.Minute
	judgeAtOnce  = 1 << 18
	judgeMin     = 1 << 10
	judgeBytes   = 16 << 20
	// archivedAtOnce is the number of offsets that one read of a letter table covers, within judgeLetters. archiveBytes
	// bounds its memory for a data file. It is more than judgeBytes, because the read needs a page of each column.
	archivedAtOnce = 1 << 16
	archiveBytes   = 64 << 20
	// keepLetters bounds the memory of the tally (see package lettercount), in bytes. It is enough for six million dead
	// letters with scattered offsets, and for any number with adjacent offsets. The tally also takes at most
	// 1/keepShare of memory.limit.
	keepLetters = 32 << 20
	keepShare   = 16
	// maxStrange bounds how many topics the watch counts that Kafka does not have. Dead letters name such a topic, and
	// its name matches a pattern of the configuration.
	maxStrange = 100
	// retryAfter is the pause before the watch reads a table again that could not show which records have rows.
	retryAfter = 10 * time.Minute
	// riseEvery is the shortest interval between two log lines which say that a topic has more unresolved dead letters
	// than before. riseLines bounds the number of such lines about all topics together in this interval.
	riseEvery = 10 * time.Minute
	riseLines = 100
	// followAgain is the pause after which rest tries again to read commits of replays that it could not read.
	followAgain = 10 * time.Second
)

// letterWatch counts the unresolved dead letters of the pipeline, for the metric sluice_unresolved_dead_letters and for
// health. Each member counts all of them from the dead-letter topics, the letter tables and the tables, as deadletters
// list does, so all members report the same number; a poll reads only new dead letters and new commits. The pipeline
// never waits for the watch, which has its own memory, requests and time limits.
type letterWatch struct {
	config *config.Config
	logger *slog.Logger
	reader *lookup.Reader
	tables objstore.Store
	guard  *reliability.Guard                      // for requests to the tables
	match  func(context.Context) ([]string, error) // returns the topics that match a pattern now; nil if there are no patterns
	find   func(context.Context, ...string) (map[string]connector.Topic, map[string]error, error)
	stands func(table string) error // returns an error while the breaker of the table's store is open; "" stands for Kafka
	// decisions returns the state of the operations log with the decisions about dead letters, nil before the log was
	// read. The channel that decided returns is closed once there is a newer state.
	decisions func() *opslog.State
	decided   func() <-chan struct{}
	rate      *lettercount.Rate
	descs     letterDescs

	// Owned by poll:
	tally     *lettercount.Tally
	followers map[string]*delta.Follower // the follower of each table
	archives  map[string]*delta.Follower // the follower of each letter table, which is followed only if needed
	ids       map[string]string          // the topic ids for which the table has positions, by topic name
	unlogged  map[string]time.Time       // for each topic, when its table last could not show which records have rows
	atOnce    int                        // the largest number of dead letters that one read of a table judges
	matched   []string
	failing   reliability.FailureLog
	sound     []string            // the topics that the last poll counted without an error
	feeds     map[string][]string // by table: the topics with dead letters in the last poll
	asOf      int64               // [opslog.State.LettersChanged] of the decisions in the last count
	replayed  map[string]int64    // [opslog.State.Replayed] of the replays whose rows the last count knows
	rises     map[string]rise     // by topic: the number that was logged
	riseLog   *reliability.Sparse

	mu      sync.Mutex
	counted map[string]map[classify.Class]int64 // the last count of each topic that was counted
	classes map[string]string                   // the value of dead_letters.class, by topic
	at      time.Time                           // the end of the last count without an error
	polled  bool
	trouble string
}

// watchLetters registers the metrics of dead letters and starts the watch that counts them. The watch ends with ctx.
func (s *Member) watchLetters(ctx context.Context, background *sync.WaitGroup) error {
	w, end := newLetterWatch(ctx, s)
	s.letters.Store(w)
	if err := s.registry.Register(w); err != nil {
		end()
		return fmt.Errorf("register the metrics of dead letters: %w", err)
	}
	background.Go(func() {
		defer end()
		w.run(ctx)
	})
	return nil
}

// newLetterWatch returns a watch that can poll until the caller calls end.
func newLetterWatch(ctx context.Context, s *Member) (w *letterWatch, end func()) {
	quiet := slog.New(slog.DiscardHandler) // the watch logs failures itself, in one line
	memory := min(max(s.pools.Fetch.Size()/4, 2<<20), 16<<20)
	reader, end := lookup.Through(ctx, s.client, kafka.LogConfig{Memory: bytepool.New(memory), PartitionBytes: int(memory / 8)}, s.config.Guard(), lettersTimeout)
	w = &letterWatch{
		config: s.config, logger: s.logger, reader: reader, tables: s.store, rate: &s.letterRate, descs: newLetterDescs(),
		guard: reliability.NewGuard("store", s.config.Guard(), quiet, nil, objstore.ErrNotFound, objstore.ErrExists),
		find:  s.client.Topics, stands: s.breaker, decisions: s.operations.State, decided: s.operations.Changed,
		tally: lettercount.New(min(keepLetters, s.config.Budget.Limit/keepShare)), followers: map[string]*delta.Follower{}, archives: map[string]*delta.Follower{}, ids: map[string]string{}, unlogged: map[string]time.Time{}, atOnce: judgeAtOnce,
		counted: map[string]map[classify.Class]int64{}, classes: map[string]string{},
		rises: map[string]rise{}, riseLog: reliability.NewSparse(riseLines, riseEvery),
	}
	if len(s.config.Patterns) > 0 {
		w.match = s.group.Topics
	}
	return w, end
}

// breaker returns an error while a circuit breaker is open: that of the store of the named table, or that of Kafka if
// table is "". The watch then sends no requests to that dependency, because its work can wait. It returns nil for a
// table that is not open.
func (s *Member) breaker(table string) error {
	g := s.kafkaGuard
	if table != "" {
		t := s.tables.get(table)
		if t == nil {
			return nil
		}
		g = t.storeGuard
	}
	if st := g.Status(); st.Open {
		return cmp.Or(st.Err, errors.New("the circuit breaker is open"))
	}
	return nil
}

// run polls until ctx ends: first at once, then after pauses.
func (w *letterWatch) run(ctx context.Context) {
	for {
		spent := w.poll(ctx)
		if !w.rest(ctx, min(max(pollLetters, restLetters*spent), maxRest)) {
			return
		}
	}
}

// rest waits until the next poll is due. When operators decide about dead letters or replay some in this time, it
// counts again at once. It returns true once the pause is over, and false if ctx ends before.
func (w *letterWatch) rest(ctx context.Context, pause time.Duration) bool {
	over, again := time.NewTimer(pause), time.NewTicker(followAgain)
	defer over.Stop()
	defer again.Stop()
	for {
		changed := w.decided() // taken before the decisions are read, so that no change is missed
		w.recount(ctx)
		select {
		case <-ctx.Done():
			return false
		case <-over.C:
			return ctx.Err() == nil // both cases may have been ready
		case <-changed:
		case <-again.C: // the commits of a replay could not be read, maybe
		}
	}
}

// outlook is the result of one poll.
type outlook struct {
	topics   map[string]config.Topic // the topics whose records can become dead letters
	dead     map[string][]string     // the topics that write to each dead-letter topic
	failures map[string]error        // the reason why a topic cannot be counted now
	notes    []string                // notes for the operator
	counts   map[string]map[classify.Class]int64
	state    *opslog.State    // has the decisions that the count takes into account
	archives map[string]error // the letter tables that this poll followed, with the error of that or of a later read
}

// fail records err as the reason why topics cannot be counted. If a topic has a reason already, it keeps that.
func (o *outlook) fail(err error, topics ...string) {
	for _, name := range topics {
		if o.failures[name] == nil {
			o.failures[name] = err
		}
	}
}

// poll counts once: it reads the new dead letters, searches the tables for rows of their records, and publishes the
// counts. If ctx ends, it publishes nothing. It returns how long everything but reading dead letters took.
func (w *letterWatch) poll(ctx context.Context) (spent time.Duration) {
	began := time.Now()
	o := &outlook{
		topics: map[string]config.Topic{}, dead: map[string][]string{}, failures: map[string]error{}, counts: map[string]map[classify.Class]int64{},
		archives: map[string]error{},
	}
	w.scope(ctx, o)
	reading := time.Now()
	w.readLetters(ctx, o)
	read := time.Since(reading)
	o.state = w.decisions()
	w.judge(ctx, o)
	if ctx.Err() == nil {
		w.publish(ctx, o)
	}
	return time.Since(began) - read
}

// scope finds the topics to count and their dead-letter topics, and stores them in o.
func (w *letterWatch) scope(ctx context.Context, o *outlook) {
	if w.match != nil {
		asking, cancel := context.WithTimeout(ctx, lettersTimeout)
		names, err := w.match(asking)
		cancel()
		if err == nil {
			w.matched = names
		} else {
			o.notes = append(o.notes, fmt.Sprintf("cannot list the topics that match a pattern: %v", err))
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

// sourcesOf returns the names of the topics that write to a dead-letter topic. It returns only names that the
// configuration alone shows: if all topics of a pattern share the dead-letter topic, it leaves them out.
func (w *letterWatch) sourcesOf(dead string) (names []string) {
	for _, s := range w.config.Sources(dead) {
		if s.Name != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// publish stores the counts of a poll for metrics and health, and logs failures and changes. A topic whose count failed
// keeps its last count.
func (w *letterWatch) publish(ctx context.Context, o *outlook) {
	var failed []string
	for _, topic := range slices.Sorted(maps.Keys(o.failures)) {
		if _, ours := o.topics[topic]; ours || o.counts[topic] != nil {
			failed = append(failed, topic)
		}
	}
	var texts []string
	seen := map[string]bool{}
	for _, topic := range failed {
		if text := o.failures[topic].Error(); !seen[text] {
			seen[text] = true
			texts = append(texts, fmt.Sprintf("topic %s: %s", topic, text))
		}
	}
	const maxTexts = 3
	if left := len(texts) - maxTexts; left > 0 {
		texts = append(texts[:maxTexts], fmt.Sprintf("and %d more", left))
	}
	trouble := strings.Join(slices.Concat(texts, o.notes), "; ")
	w.mu.Lock()
	counted := map[string]map[classify.Class]int64{}
	w.classes, w.sound, w.asOf, w.replayed = map[string]string{}, nil, o.state.LettersChanged(), o.state.Replayed()
	for topic, t := range o.topics {
		w.classes[topic] = t.DeadLetters.Class
		if before := w.counted[topic]; before != nil {
			counted[topic] = before
		}
	}
	for topic, counts := range o.counts {
		if o.failures[topic] == nil {
			counted[topic] = counts
			w.sound = append(w.sound, topic)
		} else if before := w.counted[topic]; before != nil {
			counted[topic] = before
		}
	}
	for topic := range counted {
		if w.classes[topic] == "" { // Kafka does not have this topic, but a pattern matches its name
			t, _, _ := w.config.Route(topic)
			w.classes[topic] = t.DeadLetters.Class
		}
	}
	w.counted, w.trouble = counted, trouble
	w.polled = w.polled || len(counted) > 0 || len(o.topics) == 0
	if trouble == "" {
		w.at = time.Now()
	}
	w.mu.Unlock()
	w.logRises(ctx)
	if trouble == "" {
		w.failing.Over(ctx, w.logger, "counting dead letters works again")
		return
	}
	w.failing.Failed(ctx, w.logger, slog.LevelWarn, "failed to count dead letters; keeping the last sluice_unresolved_dead_letters",
		"topics", failed[:min(len(failed), 10)], "err", trouble)
}

// recount repeats the last count if operators have decided about dead letters since then, or have replayed some. It
// sends no request, except that after replays it reads the new commits of their tables. It leaves out topics that the
// last poll could not count.
func (w *letterWatch) recount(ctx context.Context) {
	state := w.decisions()
	followed := w.followReplayed(ctx, state)
	if state.LettersChanged() == w.asOf && !followed || ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	for _, topic := range w.sound {
		if counts, ok := w.tally.Recount(topic, resolvedBy(state)); ok {
			w.counted[topic] = counts
		}
	}
	w.asOf = state.LettersChanged()
	w.mu.Unlock()
	w.logRises(ctx)
}

// resolvedBy returns a function that returns, for a partition, the offsets of the dead letters that operators discarded
// or acknowledged.
func resolvedBy(state *opslog.State) func(idempotency.Partition) offsets.Set {
	return func(p idempotency.Partition) offsets.Set {
		states := state.Letters(p)
		return states.Resolved()
	}
}

// rise holds off the next log line about a topic: it is due once the topic has more than n unresolved dead letters,
// and riseEvery has passed since at. The field at is the time of the last line. The field n is the count in that line,
// or a smaller count since then.
type rise struct {
	n  int64
	at time.Time
}

// logRises logs each topic whose unresolved dead letters have become more, at most once in riseEvery, and each topic
// that has none any more. It forgets topics that are no longer counted.
func (w *letterWatch) logRises(ctx context.Context) {
	maps.DeleteFunc(w.rises, func(topic string, _ rise) bool { return w.counted[topic] == nil })
	for _, topic := range slices.Sorted(maps.Keys(w.counted)) {
		n, before, class := int64(0), w.rises[topic], w.classes[topic]
		for _, of := range w.counted[topic] {
			n += of
		}
		switch {
		case n > before.n && time.Since(before.at) >= riseEvery:
			level, severity := slog.LevelWarn, "warning"
			if class == "financial" {
				level, severity = slog.LevelError, "critical"
			}
			if left, ok := w.riseLog.Next(); ok {
				w.logger.Log(ctx, level, "unresolved dead letters; replay, discard or acknowledge them", "severity", severity, "topic", topic,
					"unresolved", n, "before", before.n, "letters_class", class, "left_out", left)
			}
			w.rises[topic] = rise{n, time.Now()}
		case n == 0 && before.n > 0:
			w.logger.InfoContext(ctx, "no unresolved dead letters any more", "topic", topic, "before", before.n)
			delete(w.rises, topic)
		case n < before.n:
			w.rises[topic] = rise{n, before.at}
		}
	}
}

// report returns the part of the health report about dead letters. Unresolved is nil before the first count.
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
