package connector

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// A reader knows all claims of this member. It alone moves their offsets: what may be fetched, what is handed over to
// the lanes, and when a batch becomes a cut. It never waits for the network, a writer or a pool; only a marker waits for
// a lane, and a lane waits for nobody.
type reader struct {
	config   Config
	log      Log
	logger   *slog.Logger
	metrics  *metrics
	valve    *valve
	blocks   *blockPool
	lanes    []*lane
	tables   []*tableState
	byTopic  map[string]*tableState
	offsets  *offsetKeeper
	publish  func(*Status)
	standing func(table string) *Hold

	assignments chan Assignment
	outcomes    chan outcome
	progress    chan struct{}

	// Owned by run:
	claims   map[Partition]*claim
	order    []*claim // of the hand-over; turned, so that no claim starves another
	turn     int
	sessions uint64
	joined   bool // a generation is valid
	assigned bool // there was one
	draining bool
	shown    time.Time // when the status was published
}

// tableState is what the reader knows of a table. Only filled is shared: lanes count there what they hold.
type tableState struct {
	name    string
	writer  *writer
	decoder Decoder
	limits  Limits
	filled  filled

	schema  Schema    // that lanes build for
	opened  time.Time // when the batch that fills got its first record; zero if it has none
	cutting *openCut  // the cut on its way, nil if there is none
	looking bool
	checks  time.Time // when idle claims are looked at again
}

const (
	// A cut without rows moves only positions; it waits until so many offsets or so much time have gathered.
	emptyOffsets = 1_000_000
	emptyEvery   = 10 * time.Minute
	// closedTold is how long the valve stays closed before it is worth a line.
	closedTold = time.Second
	showEvery  = 500 * time.Millisecond
)

// run works until ctx ends or the run is current, then drains.
func (r *reader) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.handOver()
		for _, t := range r.tables {
			if reason := r.due(t); reason != "" {
				r.cut(t, reason)
			}
			r.check(t)
		}
		r.show()
		if r.current() {
			r.logger.InfoContext(ctx, "current: the table has what the topics held at the start")
			break
		}
		timer.Reset(r.untilDue())
		select {
		case a := <-r.assignments:
			r.assign(a)
		case f := <-r.log.Fetched():
			r.fetched(f)
		case o := <-r.outcomes:
			r.heard(o)
		case <-r.progress:
		case <-timer.C:
		case <-ctx.Done():
			r.drain(ctx)
			return
		}
	}
	r.drain(ctx)
}

// assign takes over what this member should work on. Claims that stay are left alone; the end of a generation changes
// nothing: the table's log is the fence.
func (r *reader) assign(a Assignment) {
	r.joined = a.Joined
	if !a.Joined {
		r.offsets.soon()
		return
	}
	r.assigned = true
	for p, c := range r.claims {
		if !slices.Contains(a.Partitions, p) {
			r.lose(c)
		}
	}
	fresh := map[*tableState][]*claim{}
	for _, p := range a.Partitions {
		t, ours := r.byTopic[p.Topic]
		if _, have := r.claims[p]; have || !ours {
			continue
		}
		c := &claim{Partition: p, table: t, lane: r.leastLoaded(), state: resuming, target: -1}
		r.end(c) // gives it its first session
		r.claims[p] = c
		fresh[t] = append(fresh[t], c)
	}
	r.order = slices.SortedFunc(maps.Values(r.claims), func(a, b *claim) int { return comparePartitions(a.Partition, b.Partition) })
	for t, claims := range fresh {
		r.resume(t, claims...)
	}
	r.logger.Info("assigned", "claims", len(r.claims))
}

// lose forgets a claim. Its rows in the batch that fills are masked at the cut, because its session is not in it.
func (r *reader) lose(c *claim) {
	r.end(c)
	delete(r.claims, c.Partition)
	r.order = slices.DeleteFunc(r.order, func(o *claim) bool { return o == c })
}

func (r *reader) leastLoaded() *lane {
	load := make([]int, len(r.lanes))
	for _, c := range r.claims {
		load[c.lane.id]++
	}
	return r.lanes[slices.Index(load, slices.Min(load))]
}

// fetched takes an answer. One of an earlier session is dropped.
func (r *reader) fetched(f Fetched) {
	c, ok := r.claims[f.Partition]
	if !ok || c.session != f.Session || !c.fetching {
		return
	}
	c.fetching = false
	c.bounds = f.Bounds
	c.queue = append(c.queue, f)
	if f.Err == nil {
		c.ahead, c.aheadEp = f.Next, f.Epoch
	}
	r.request(c)
}

// handOver moves records from the claims to their lanes, block by block in turns, as long as the valve is open.
func (r *reader) handOver() {
	for again := true; again; {
		again = false
		r.turn++
		for i := range r.order {
			if !r.open() {
				return
			}
			c := r.order[(i+r.turn)%len(r.order)]
			if len(c.queue) > 0 && r.handOverFrom(c) {
				again = true
			}
		}
	}
}

// open tells whether the valve is, and says so when it stays closed.
func (r *reader) open() bool {
	was, now := r.valve.closed, time.Now()
	open := r.valve.isOpen(now)
	switch {
	case open && was:
		r.metrics.closedSeconds.Add(now.Sub(r.valve.since).Seconds())
		if r.valve.told {
			r.logger.Info("BACKPRESSURE: RESUMED", "queued", r.valve.queued.Load(), "after", now.Sub(r.valve.since).Round(time.Millisecond))
		}
		r.valve.told = false
	case !open && !was:
		r.metrics.paused.Inc()
	case !open && !r.valve.told && now.Sub(r.valve.since) >= closedTold:
		r.valve.told = true
		r.logger.Warn("BACKPRESSURE: PAUSED", "queued", r.valve.queued.Load(), "pause_at", r.config.Queue.PauseAt, "resume_at", r.config.Queue.ResumeAt)
	}
	return open
}

// handOverFrom hands over at most one block of a claim and tells whether anything moved.
func (r *reader) handOverFrom(c *claim) bool {
	t := c.table
	if t.cutting != nil && r.full(t) {
		return false // one cut on its way, one batch full: the rest waits in Kafka
	}
	f := &c.queue[0]
	if c.parsed == nil {
		b := r.blocks.get()
		n, err := 0, error(io.EOF)
		if f.Records != nil {
			n, err = f.Records.Read(b.records[:blockRecords])
		}
		if n == 0 {
			r.blocks.put(b)
			r.finish(c, f, err)
			return true
		}
		if err != nil { // the end, or a damaged batch behind these records
			f.Records = nil
			if !errors.Is(err, io.EOF) {
				f.Err = err
			}
		}
		b.records = b.records[:n]
		c.parsed = b
	}
	b := c.parsed
	for _, rec := range b.records[len(b.taken):] {
		slot := r.valve.slot(c.Partition, rec.Key)
		if !r.valve.take(slot) {
			break // this key has its share queued: this partition waits, others go on
		}
		b.taken = append(b.taken, slot)
	}
	ready := len(b.taken)
	if ready == 0 {
		return false
	}
	out := b
	if c.parsed = nil; ready < len(b.records) {
		out, c.parsed = r.split(b, ready)
	}
	out.table, out.schema, out.partition, out.session = t, t.schema, c.Partition, c.session
	last := out.records[ready-1].Offset // the lane owns the block once it has it
	select {
	case c.lane.in <- laneWork{block: out}:
	default: // the lane is busy: it will say when it is not
		r.valve.give(out.taken)
		out.taken = out.taken[:0]
		c.parsed = r.join(out, c.parsed)
		return false
	}
	c.next, c.epoch = last+1, f.Epoch
	if t.opened.IsZero() {
		t.opened = time.Now()
	}
	if c.hold != nil {
		r.release(c)
	}
	r.metrics.read.Add(float64(ready))
	return true
}

// split moves the records that found room into a block of their own.
func (r *reader) split(b *block, ready int) (out, rest *block) {
	out, rest = r.blocks.get(), r.blocks.get()
	out.records = append(out.records, b.records[:ready]...)
	out.taken = append(out.taken, b.taken...)
	rest.records = append(rest.records, b.records[ready:]...)
	r.blocks.put(b)
	return out, rest
}

// join undoes split.
func (r *reader) join(out, rest *block) *block {
	if rest == nil {
		return out
	}
	out.records = append(out.records, rest.records...)
	r.blocks.put(rest)
	return out
}

// finish passes the end of an answer: control and aborted batches behind the last record, or the place where it cannot
// go on.
func (r *reader) finish(c *claim, f *Fetched, err error) {
	done := *f
	c.queue = slices.Delete(c.queue, 0, 1)
	if !errors.Is(err, io.EOF) { // a damaged batch: the records before it were handed over
		done.Err = err
	}
	if done.Err != nil {
		r.cannotRead(c, done.Err)
		return
	}
	if done.Next > c.next {
		c.next, c.epoch = done.Next, done.Epoch
		if c.table.opened.IsZero() {
			c.table.opened = time.Now()
		}
	}
	if c.hold != nil && c.state == reading {
		r.release(c)
	}
	r.request(c)
}

// cannotRead holds a claim where its log cannot be read on.
func (r *reader) cannotRead(c *claim, err error) {
	reason, detail, ok := reasonOf(err)
	if !ok {
		reason, detail = ReasonCorruptBatch, err.Error()
	}
	r.stand(c, Hold{Reason: reason, Detail: detail, Offset: c.next})
}

// full tells whether the batch that fills is as large as a commit may be.
func (r *reader) full(t *tableState) bool {
	return t.filled.rows.Load() >= t.limits.Rows || t.filled.bytes.Load() >= t.limits.Bytes
}

// due says why the batch of a table should be cut now, or "".
func (r *reader) due(t *tableState) string {
	if t.cutting != nil || t.opened.IsZero() {
		return ""
	}
	rows, age := t.filled.rows.Load(), time.Since(t.opened)
	empty := rows == 0 && t.filled.bad.Load() == 0 && r.valve.queued.Load() == 0
	switch {
	case r.draining:
		return "drain"
	case r.config.UntilCurrent && r.reached():
		return "current"
	case rows >= t.limits.Rows:
		return "rows"
	case t.filled.bytes.Load() >= t.limits.Bytes:
		return "bytes"
	case !empty && age >= t.limits.Every:
		return "age"
	case empty && (age >= emptyEvery || r.gathered(t) >= emptyOffsets):
		return "positions"
	}
	return ""
}

// gathered is how many offsets the batch that fills covers.
func (r *reader) gathered(t *tableState) (n int64) {
	for _, c := range r.claims {
		if c.table == t {
			n += c.next - c.from
		}
	}
	return n
}

// cut closes the batch of a table: a marker through all lanes, behind everything handed over.
func (r *reader) cut(t *tableState, reason string) {
	claims := map[Partition]Span{}
	for p, c := range r.claims {
		if c.table == t && c.state != resuming && c.next > c.from {
			claims[p] = Span{c.session, c.from, c.next, c.epoch}
			c.from = c.next
		}
	}
	t.opened = time.Time{}
	if len(claims) == 0 {
		r.dropOpen(t)
		return
	}
	open := &openCut{claims, make(chan part, len(r.lanes))}
	for _, l := range r.lanes {
		l.in <- laneWork{table: t, cut: open}
	}
	t.cutting = open
	t.writer.post(func(w *work) { w.cut = open })
	r.metrics.cuts.WithLabelValues(reason).Inc()
}

// dropOpen tells the lanes to drop what they hold for a table.
func (r *reader) dropOpen(t *tableState) {
	for _, l := range r.lanes {
		l.in <- laneWork{table: t}
	}
}

// heard acts on what a writer says.
func (r *reader) heard(o outcome) {
	t := o.table
	if o.schema != nil {
		t.schema = o.schema
	}
	if o.cut != nil && o.cut != t.cutting {
		return // a fence came in between: its claims have resumed behind it, wherever it ended
	}
	switch o.kind {
	case settled:
		r.settled(t, o.plan)
	case fenced:
		r.fenced(t, o.err)
	case failed:
		r.failed(t, o.err)
	case resumed:
		for p, f := range o.resumed {
			if c, ok := r.claims[p]; ok && c.session == f.session {
				r.resumed(c, f)
			}
		}
	case looked:
		t.looking = false
	}
}

// settled notes what is in the table now.
func (r *reader) settled(t *tableState, p *Plan) {
	cut := t.cutting.claims
	t.cutting, t.looking = nil, false
	for partition, span := range p.Next {
		c, ours := r.claims[partition]
		if !ours {
			continue // its new owner resumes where we left the table
		}
		r.offsets.note(partition, GroupOffset{span.Next, span.Epoch})
		if c.session == span.Session {
			c.position, c.fences = span.Next, 0
		}
	}
	for _, h := range p.Holds {
		if c, ours := r.claims[h.Partition]; ours && c.session == cut[h.Partition].Session {
			c.position = h.Offset
			r.end(c)
			r.stand(c, h)
		}
	}
}

// fenced drops the cut and everything behind it. Positions moved, or nobody knows whether they did: all claims of the
// table resume from the log.
func (r *reader) fenced(t *tableState, err error) {
	r.metrics.fenced.Inc()
	r.logger.Warn("FENCED: everything read and not committed is dropped, its claims resume from the table", "table", t.name, "err", err)
	r.dropAll(t)
	var again []*claim
	for _, c := range r.claims {
		if c.table != t {
			continue
		}
		if !r.joined && r.assigned { // no generation and a fence: somebody else works on them
			r.lose(c)
			continue
		}
		r.end(c)
		if c.fences++; c.fences >= 3 && c.hold == nil {
			c.still, c.seen = 0, -1
			r.stand(c, Hold{Reason: ReasonContested, Detail: "others move this position again and again; last: " + err.Error(), Offset: c.position})
			continue
		}
		if c.hold == nil {
			c.state = resuming
		}
		again = append(again, c)
	}
	r.resume(t, again...)
}

// failed holds all claims of a table that cannot be written.
func (r *reader) failed(t *tableState, err error) {
	reason, detail, _ := reasonOf(err)
	r.dropAll(t)
	for _, c := range r.claims {
		if c.table == t {
			r.end(c)
			r.stand(c, Hold{Reason: reason, Detail: detail, Offset: c.position})
		}
	}
}

// dropAll drops the batch that fills and the cut behind which nothing can follow any more.
func (r *reader) dropAll(t *tableState) {
	t.cutting, t.opened, t.looking = nil, time.Time{}, false
	t.writer.post(func(w *work) { w.cut, w.look = nil, nil })
	r.dropOpen(t)
}

// resumed starts a claim where the table stands, or holds it.
func (r *reader) resumed(c *claim, f found) {
	if c.state == reading {
		return
	}
	c.bounds = f.bounds
	if f.at.Partition == c.Partition {
		c.position = f.at.Next
	}
	if f.hold != nil {
		if c.target < 0 {
			c.target = 0
		}
		r.stand(c, *f.hold)
		return
	}
	if c.target < 0 {
		c.target = f.bounds.LastStable
	}
	if f.mend {
		r.offsets.note(c.Partition, GroupOffset{f.at.Next, f.at.Epoch})
	}
	if c.hold != nil && !r.maySucceed(c, f) {
		return
	}
	if c.hold != nil && c.hold.Reason != ReasonCorruptBatch && c.hold.Reason != ReasonOversize {
		r.release(c) // of these two only reading on can tell
	}
	r.end(c)
	r.begin(c, f.at)
}

// maySucceed tells whether a held claim may be read again. The hold is shown until records flow.
func (r *reader) maySucceed(c *claim, f found) bool {
	switch c.hold.Reason {
	case ReasonPoison:
		return f.at.Next != c.hold.Offset // the same bytes would fail again
	case ReasonContested:
		if c.still++; f.at.Next != c.seen {
			c.still, c.seen = 0, f.at.Next
		}
		if c.still < 2 {
			c.hold.Offset = f.at.Next
			return false
		}
		c.fences = 0
	}
	return true
}

// check has held claims and idle ones compared with the table from time to time.
func (r *reader) check(t *tableState) {
	now := time.Now()
	var again []*claim
	for _, c := range r.claims {
		// Not while rows of it are open: what it read before the hold must settle first.
		if c.table == t && c.state == held && !now.Before(c.checks) && c.next == c.from && t.cutting == nil {
			c.checks = now.Add(c.checkEvery())
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		r.resume(t, again...)
	}
	if t.checks.IsZero() {
		t.checks = now.Add(recheck)
	}
	if now.Before(t.checks) || t.looking || t.cutting != nil {
		return
	}
	t.checks = now.Add(recheck)
	expected := map[Partition]int64{}
	for p, c := range r.claims {
		if c.table == t && c.state == reading && c.next == c.from {
			expected[p] = c.from
		}
	}
	if len(expected) > 0 {
		t.looking = true
		t.writer.post(func(w *work) { w.look = expected })
	}
}

// reached tells whether every claim was read to where the topics ended at the start, or holds.
func (r *reader) reached() bool {
	if !r.joined || r.valve.queued.Load() > 0 {
		return false
	}
	for _, c := range r.claims {
		if c.hold == nil && (c.target < 0 || c.next < c.target) {
			return false
		}
	}
	return true
}

// current tells whether an until-current run is done.
func (r *reader) current() bool {
	if !r.config.UntilCurrent || !r.reached() {
		return false
	}
	for _, t := range r.tables {
		if t.cutting != nil || t.filled.rows.Load() > 0 {
			return false
		}
	}
	for _, c := range r.claims {
		if c.hold == nil && c.position < c.target {
			return false
		}
	}
	return true
}

// untilDue is when something becomes due by time alone.
func (r *reader) untilDue() time.Duration {
	now := time.Now()
	next := now.Add(showEvery)
	for _, t := range r.tables {
		if !t.opened.IsZero() && t.cutting == nil {
			if due := t.opened.Add(t.limits.Every); due.After(now) && due.Before(next) {
				next = due
			}
		}
	}
	return max(next.Sub(now), time.Millisecond)
}

// drain ends the work: no more fetching, one last cut of what was handed over, its commit, the group offsets. Whatever
// is left at the end of the time is dropped, which only means that it is read again.
func (r *reader) drain(ctx context.Context) {
	began := time.Now()
	r.draining = true
	for _, c := range r.claims {
		if c.fetching {
			r.log.Forget(c.Partition)
		}
		if c.parsed != nil {
			r.blocks.put(c.parsed)
		}
		c.queue, c.parsed, c.fetching = nil, nil, false
	}
	end := time.NewTimer(r.config.Drain)
	defer end.Stop()
	for busy := true; busy; {
		busy = false
		for _, t := range r.tables {
			if reason := r.due(t); reason != "" {
				r.cut(t, reason)
			}
			busy = busy || t.cutting != nil
		}
		r.shown = time.Time{}
		r.show()
		if !busy {
			break
		}
		select {
		case o := <-r.outcomes:
			r.heard(o)
		case <-r.assignments:
		case <-r.log.Fetched():
		case <-r.progress:
		case <-end.C:
			r.logger.Warn("drain: time is over, the open batch is dropped and will be read again", "after", r.config.Drain)
			return
		}
	}
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(r.config.Drain-time.Since(began), time.Second))
	defer cancel()
	r.offsets.flush(left)
	r.logger.Info("drained", "after", time.Since(began).Round(time.Millisecond))
}
