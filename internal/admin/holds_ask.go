package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/health"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/opslog"
)

// sourceResult has the holds that one source reports, and the errors of requests to that source.
type sourceResult struct {
	held
	missed []error
	member bool   // true if the source is a member of the pipeline and has responded
	id     string // the name of that member; "" if its response has none
}

// timeoutError means that a dependency did not respond in time.
type timeoutError struct {
	name   string        // the name of the dependency
	within time.Duration // the time limit of the dependency
	about  string        // what is unknown because of this, as a clause
	err    error         // the error of the last request
}

func (u *timeoutError) Error() string {
	return fmt.Sprintf("%s did not respond within %s, and so %s: %v", u.name, u.within, u.about, u.err)
}

func (u *timeoutError) Unwrap() error { return u.err }

// addFailure adds the error of a request to a dependency. If ctx has ended, the added error says which holds are
// unknown because of the timeout; otherwise it is err.
func (l *sourceResult) addFailure(ctx context.Context, name string, within time.Duration, about string, err error) {
	if ctx.Err() != nil {
		err = &timeoutError{name, within, about, err}
	} else {
		err = fmt.Errorf("%s: %w", name, err)
	}
	l.missed = append(l.missed, err)
}

// requestHolds collects the holds from the members, from the operations log, and from the tables with Kafka. It does so
// in parallel, so that an outage of one source does not delay the others, and each dependency gets half of the time
// limit. The results are always in the same order. A member that responds at two addresses is one source.
func (a *Access) requestHolds(ctx context.Context, topic string, members []string, timeout time.Duration) ([]*sourceResult, *registeredResult) {
	cfg := a.Config
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	each := timeout / 2
	asks := []func(*sourceResult){
		func(l *sourceResult) { l.readOperations(ctx, a, each) },
		func(l *sourceResult) { a.findHolds(ctx, topic, each, l) },
	}
	own := "http://" + Reachable(cfg.Health.Listen)
	if cfg.Health.Enabled && !slices.Contains(members, own) {
		asks = append(asks, func(l *sourceResult) { l.requestMember(ctx, own, cfg.Pipeline, each, false) })
	}
	for _, url := range members {
		asks = append(asks, func(l *sourceResult) { l.requestMember(ctx, strings.TrimSuffix(url, "/"), cfg.Pipeline, each, true) })
	}
	all := make([]*sourceResult, len(asks))
	var asking sync.WaitGroup
	for i, ask := range asks {
		all[i] = &sourceResult{}
		asking.Go(func() { ask(all[i]) })
	}
	others := requestRegistered(ctx, a, each, registeredTransport())
	asking.Wait()
	known := map[string]bool{}
	all = slices.DeleteFunc(slices.Concat(all, others.sources), func(l *sourceResult) bool {
		again := l.id != "" && known[l.id]
		known[l.id] = true
		return again
	})
	return all, others
}

// memberTimeout bounds the request to the member at health.listen in commands to which its response only adds
// information.
const memberTimeout = 2 * time.Second

// heldByMember returns the holds that the member at health.listen reports. There are none if no member of the pipeline
// responds there.
func heldByMember(ctx context.Context, cfg *config.Config) *held {
	var l sourceResult
	if cfg.Health.Enabled {
		l.requestMember(ctx, "http://"+Reachable(cfg.Health.Listen), cfg.Pipeline, memberTimeout, false)
	}
	return &l.held
}

// of returns the hold of a partition: its own, that of its topic, or that of the whole pipeline; nil without one.
func (h *held) of(topic string, partition int32) *Hold {
	for _, p := range h.all {
		if (p.Topic == topic && (p.Partition == partition || p.Partition < 0)) || p.Topic == "" {
			return p
		}
	}
	return nil
}

// readOperations adds the pauses in the operations log. If the log is damaged, it adds the hold operations_log.
func (l *sourceResult) readOperations(ctx context.Context, a *Access, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	state, err := Operations(ctx, a)
	broken := (*opslog.BrokenError)(nil)
	switch {
	case errors.As(err, &broken):
		l.add(fromOperations, "", -1, hold.OperationsLog, err.Error(), time.Time{}, -1)
	case err != nil:
		l.addFailure(ctx, "the store", within, "what is paused is not known", err)
	default:
		for _, p := range state.Pauses() {
			h := p.Hold()
			l.add(fromOperations, p.Target.Topic, p.Target.Partition, h.Reason, h.Detail, h.Since, h.Offset)
		}
	}
}

// findHolds adds the holds that a member would set now, as far as the tables and Kafka show them. After a failed
// request, it adds an error that says which holds are unknown.
func (a *Access) findHolds(ctx context.Context, topic string, within time.Duration, l *sourceResult) {
	cfg := a.Config
	listing, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	names, err := a.topics(listing, topic)
	silent := false
	if kind := fail.Of(err); kind != 0 && kind != fail.KindDependency {
		l.missed = append(l.missed, err)
		return
	} else if err != nil {
		silent, names = true, slices.Concat(cfg.TopicNames(), cfg.LaterTopics())
		l.addFailure(listing, "Kafka", within, "it is not known which topics match the patterns, nor whether positions are in their logs", err)
	}
	reading, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tables, end, err := openAll(reading, cfg, names)
	if err != nil {
		l.missed = append(l.missed, err)
		return
	}
	defer end()
	looks := l.readTables(reading, within, tables)
	if len(tables) == 0 || silent {
		return
	}
	asking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	queries, err := newKafkaQueries(asking, cfg)
	if err != nil {
		l.missed = append(l.missed, fmt.Errorf("kafka: %w", err))
		return
	}
	defer queries.close()
	if len(looks) == 0 { // the store failed, so no table was read; this request shows whether Kafka fails, too
		if err := queries.retry(func(ctx context.Context) error { _, err := queries.group.Topics(ctx); return err }); err != nil {
			l.addFailure(asking, "Kafka", within, "it is not known whether positions are in their logs", err)
		}
		return
	}
	if err := queries.tooMany(cfg, topic, &l.held); err != nil {
		l.addFailure(asking, "Kafka", within, "it is not known which topics match and are too many", err)
	}
	queries.findHolds(asking, cfg, within, looks, l)
}

// tooMany adds a hold for each topic that exceeds max_topics of its pattern.
func (q *kafkaQueries) tooMany(cfg *config.Config, topic string, found *held) error {
	if len(cfg.Patterns) == 0 {
		return nil
	}
	var beyond []kafka.Absent
	err := q.retry(func(ctx context.Context) (err error) { _, beyond, err = q.group.Survey(ctx); return err })
	if err != nil {
		return fmt.Errorf("which topics match: %w", err)
	}
	for _, a := range beyond {
		if topic == "" || topic == a.Topic {
			found.add(fromTable, a.Topic, -1, a.Reason, a.Detail, time.Time{}, -1)
		}
	}
	return nil
}

// tableRead is the result of reading one table: its snapshot and the hold of the whole table, or an error.
type tableRead struct {
	*Table
	snapshot *connector.Snapshot
	hold     *HoldInfo
	err      error
}

// readTables reads all tables, several in parallel. It adds the holds of whole tables, and returns the tables that
// could be read.
func (l *sourceResult) readTables(ctx context.Context, within time.Duration, tables []*Table) (looks []tableRead) {
	all := make([]tableRead, len(tables))
	runLimited(len(tables), askedAtOnce, func(i int) {
		t := &all[i]
		t.Table = tables[i]
		again := lookup.Patience(ctx, reliability.NewGuard("store", t.config.Guard(), slog.New(slog.DiscardHandler), nil))
		t.err = again(func(ctx context.Context) (err error) {
			t.snapshot, t.hold, err = t.Table.snapshot(ctx)
			return err
		})
	})
	var silent []string
	var last error
	for _, t := range all {
		switch {
		case t.err == nil:
			looks = append(looks, t)
			for _, name := range t.topics {
				if h := t.hold; h != nil {
					l.add(fromTable, name, -1, h.Reason, h.Detail, time.Time{}, -1)
				}
			}
		case ctx.Err() != nil:
			silent, last = append(silent, t.table.Table), t.err
		default:
			l.missed = append(l.missed, t.err)
		}
	}
	if len(silent) > 0 {
		l.addFailure(ctx, "the store", within, "the positions are not known of the tables "+firstOf(silent), last)
	}
	return looks
}

// findHolds compares the positions of tables with the logs in Kafka, and adds the holds that a member would set.
func (q *kafkaQueries) findHolds(ctx context.Context, cfg *config.Config, within time.Duration, looks []tableRead, l *sourceResult) {
	type topicLook struct {
		table tableRead
		name  string
		found sourceResult
	}
	var all []*topicLook
	for _, t := range looks {
		for _, name := range t.topics {
			all = append(all, &topicLook{table: t, name: name})
		}
	}
	runLimited(len(all), askedAtOnce, func(i int) {
		t := all[i]
		look, err := q.inspect(ctx, t.table.Table, t.name, t.table.snapshot)
		if notYet(cfg, t.name, t.table.snapshot, err) {
			return
		}
		if held, ok := errors.AsType[*hold.Error](err); ok {
			t.found.add(fromTable, t.name, -1, held.Reason, held.Why(), time.Time{}, -1)
		} else if err != nil {
			t.found.missed = []error{fmt.Errorf("topic %s: %w", t.name, err)}
		} else {
			t.found.missed = q.holds(ctx, look, t.table.hold == nil, &t.found.held)
		}
	})
	var silent []string
	var last error
	for _, t := range all {
		l.merge(&t.found.held)
		for _, err := range t.found.missed {
			if ctx.Err() != nil {
				silent, last = append(silent, t.name), err
				break
			}
			l.missed = append(l.missed, fmt.Errorf("kafka: %w", err))
		}
	}
	if len(silent) > 0 {
		l.addFailure(ctx, "Kafka", within, "it is not known whether the positions are in the log of the topics "+firstOf(silent), last)
	}
}

// holds adds to found the holds of a topic's partitions. With records set, it also reads the record at each position to
// find out whether it can become a row. The caller does not set records if the table itself is held.
func (q *kafkaQueries) holds(ctx context.Context, l *inspection, records bool, found *held) (failures []error) {
	for _, p := range l.partitions() {
		at, b := l.position(p), l.bounds[p]
		if h := l.hold(p); h != nil {
			found.add(fromTable, p.Topic, p.ID, h.Reason, h.Detail, h.Since, h.Offset)
			continue
		}
		if at < 0 || at >= b.LastStable || !records {
			continue
		}
		reason, detail, offset, err := q.recordAt(ctx, l, p, at)
		switch {
		case err != nil:
			failures = append(failures, fmt.Errorf("%v: %w", p, err))
		case reason != "":
			found.add(fromTable, p.Topic, p.ID, reason, detail, time.Time{}, offset)
		}
	}
	return failures
}

// askedAtOnce is how many tables, or topics, are asked about their holds at the same time.
const askedAtOnce = 16

// runLimited calls do for 0 to n-1, up to atOnce at a time, and returns when all calls have returned.
func runLimited(n, atOnce int, do func(i int)) {
	var doing sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i := range n {
		room <- struct{}{}
		doing.Go(func() {
			defer func() { <-room }()
			do(i)
		})
	}
	doing.Wait()
}

// firstOf returns a text with the first five names and the number of the others.
func firstOf(names []string) string {
	const shown = 5
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), shown)], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// largestReport bounds the response of a member, in bytes.
const largestReport = 64 << 20

// requestMember adds the holds that the member at url reports, and an error for each of its failing dependencies that
// no hold explains. If the connection is refused, it adds an error only if named is set, which means that the operator
// named the address.
func (l *sourceResult) requestMember(ctx context.Context, url, pipeline string, within time.Duration, named bool) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil); err != nil {
		l.missed = append(l.missed, fail.Usage(fmt.Errorf("--member: %w", err)))
		return
	}
	unbounded := new(atomic.Int64)
	unbounded.Store(math.MaxInt64)
	report, err := readReport(ctx, &http.Transport{DisableKeepAlives: true}, url, largestReport, unbounded)
	other := (*notAMemberError)(nil)
	switch {
	case errors.As(err, &other):
		l.missed = append(l.missed, other)
	case err != nil:
		if named || !errors.Is(err, syscall.ECONNREFUSED) {
			l.addFailure(ctx, "the member at "+url, within, "the holds that only it knows are not shown", err)
		}
	case report.Pipeline != pipeline:
		l.missed = append(l.missed, fmt.Errorf("the member at %s is of pipeline %q, not %q", url, report.Pipeline, pipeline))
	default:
		l.member, l.id = true, report.Member
		l.addReport(cmp.Or(report.Member, url), report)
	}
}

// addReport adds the holds in the report of a member, and an error for each of its failing dependencies that no hold
// explains.
func (l *sourceResult) addReport(from string, report *memberReport) {
	for _, h := range report.Holds {
		l.add(from, h.Topic, h.Partition, hold.Reason(h.Reason), h.Detail, h.Since, h.Offset)
	}
	l.missed = append(l.missed, failing(from, report.Holds, report.Dependencies)...)
}

// failing returns an error for each failing dependency of a member that none of its holds explains, for example because
// the breaker has not opened yet. It returns at most one error for each dependency and table.
func failing(from string, holds []health.Hold, dependencies []health.Dependency) (all []error) {
	named := map[string]bool{}
	for _, d := range dependencies {
		first, _, _ := strings.Cut(d.Name, " ") // the name "kafka broker 1" stands for Kafka as well
		name := first
		if d.Table != "" {
			name += " of table " + d.Table
		}
		explained := slices.ContainsFunc(holds, func(h health.Hold) bool { return explains(hold.Reason(h.Reason), first) })
		if d.Failing == nil || named[name] || explained {
			continue
		}
		named[name] = true
		all = append(all, fmt.Errorf("the member %s: %s has failed since %s: %s", memberName(from), name, d.Failing.UTC().Format(time.RFC3339), d.Error))
	}
	return all
}

// memberName returns how errors name the source of a report: a member by its name, or by its URL.
func memberName(from string) string {
	if strings.Contains(from, "://") {
		return "at " + from
	}
	return from
}

// explains reports whether a hold with this reason already shows that the dependency fails: the reason is about that
// dependency or about one that it needs.
func explains(reason hold.Reason, dependency string) bool {
	if reason == hold.CommitUndecided || reason == hold.OperationsLog { // these reasons are about one commit or one entry; they do not show that other requests fail
		return false
	}
	failed := hold.Dependency(dependency)
	switch of := reason.Dependency(); of {
	case "":
		return false
	case hold.Kafka:
		return failed == of || failed == hold.DeadLetters // the dead-letter topic is in the same cluster
	case hold.Store:
		return failed == of || failed == hold.Operations // the operations log is in the same store
	default:
		return failed == of
	}
}
