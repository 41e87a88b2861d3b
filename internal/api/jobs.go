package api

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"sluice/internal/admin"
	"sluice/reliability/panics"
	"sluice/sink/opslog"
)

// keptJobs is how many jobs a member remembers.
const keptJobs = 50

// jobState is the state of a job.
type jobState string

const (
	jobPlanning   jobState = "planning"
	jobReplaying  jobState = "replaying"
	jobCancelling jobState = "cancelling" // an operator cancelled it; it finishes its commit
	jobDone       jobState = "done"
	jobCancelled  jobState = "cancelled"
	jobFailed     jobState = "failed"
	jobStopped    jobState = "stopped" // the member stopped first
)

// Job is a replay job as clients see it. Its maps and slices are never changed: progress replaces them.
type Job struct {
	ID       string            `json:"id"`
	State    jobState          `json:"state"`
	DryRun   bool              `json:"dry_run"`
	Member   string            `json:"member"`
	Operator string            `json:"operator"`
	Reason   string            `json:"reason"`
	Selects  replaySelection   `json:"selects"`
	Started  time.Time         `json:"started"`
	Ended    *time.Time        `json:"ended"`
	Plan     *admin.ReplayPlan `json:"plan"` // nil before the plan is made
	jobProgress
	// CancelledBy and CancelReason are "" unless an operator cancelled the job.
	CancelledBy  string    `json:"cancelled_by,omitempty"`
	CancelReason string    `json:"cancel_reason,omitempty"`
	Error        *jobError `json:"error"` // of a failed job

	number int64 // in the order of starts
}

// jobProgress says how far a job is.
type jobProgress struct {
	Handled   int                        `json:"handled"`
	Rows      int64                      `json:"rows"`
	Failed    map[string]int             `json:"failed"` // by reason code
	Parked    int                        `json:"parked"`
	LeftOut   map[string]int             `json:"left_out"` // by cause
	First     map[string]admin.FirstFail `json:"first_failures"`
	Tables    []admin.ReplayCommit       `json:"tables"`    // the newest commit of each table, with the rows of all
	Operation int64                      `json:"operation"` // seq of its first entry in the operations log, 0 without one
}

// jobError says why a job failed, as a problem does.
type jobError struct {
	Code   code   `json:"code"`
	Detail string `json:"detail"`
}

// job is a job that runs or has ended. The mutex of [jobs] protects view.
type job struct {
	view    Job
	once    opslog.Once
	err     error // of a failed job, before done is closed
	commits int   // those of the result that view.Tables includes
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed once it has ended
}

func (j *job) running() bool { return j.view.Ended == nil }

// jobs runs the jobs of a member, one at a time, and remembers those that have ended.
type jobs struct {
	logger *slog.Logger

	mu      sync.Mutex
	all     []*job // the newest last
	number  int64
	stopped bool // no job starts any more
	work    sync.WaitGroup
}

// The causes with which a job is cancelled.
var (
	errJobCancelled = errors.New("the job was cancelled")
	errJobStopped   = errors.New("the member stops")
)

// start starts a job that runs do on a goroutine of its own. do returns once ctx ends. If a job has the same key and is
// running or has changed something, start returns that job, and repeated is true.
func (js *jobs) start(ctx context.Context, view Job, once opslog.Once, do func(context.Context, *job) error) (j *job, repeated bool, err error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j, err := js.withKey(once); j != nil || err != nil {
		return j, j != nil, err
	}
	if js.stopped {
		return nil, false, newProblem(codeDependency, "this member stops: start the job on another member").with("Retry-After", "5")
	}
	if i := slices.IndexFunc(js.all, (*job).running); i >= 0 {
		return nil, false, newProblem(codeBusy, "job %s of %s is running: wait for its end, or cancel it", js.all[i].view.ID, js.all[i].view.Operator).with("Retry-After", "10")
	}
	js.number++
	view.ID, view.number, view.State = uuid.NewString(), js.number, jobPlanning
	view.jobProgress = progressOf(&admin.ReplayResult{}, nil)
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	j = &job{view: view, once: once, cancel: cancel, done: make(chan struct{})}
	js.all = append(js.all, j)
	if len(js.all) > keptJobs {
		js.all = slices.Clone(js.all[1:])
	}
	js.work.Go(func() {
		defer cancel(nil)
		err := panics.Catch(func() error { return do(working, j) })
		js.end(working, j, err)
	})
	return j, false, nil
}

// withKey returns the job with a key, nil without one. A job that ended without an entry in the operations log has freed its
// key. The caller has the lock.
func (js *jobs) withKey(once opslog.Once) (*job, error) {
	if once == (opslog.Once{}) {
		return nil, nil
	}
	for _, j := range js.all {
		if j.once.Key == once.Key && (j.running() || j.view.Operation > 0) {
			if j.once.Request != once.Request {
				return nil, newProblem(codeKeyReused, "job %s has this key and was another request: send another Idempotency-Key, or the same request as before", j.view.ID)
			}
			return j, nil
		}
	}
	return nil, nil
}

// keyed reports whether start would return an existing job for the key. It returns an error if the key belongs to
// another request.
func (js *jobs) keyed(once opslog.Once) (bool, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j, err := js.withKey(once)
	return j != nil, err
}

// end records that a job has ended, and logs it. err is the result of its work, ctx the context with which it ran.
func (js *jobs) end(ctx context.Context, j *job, err error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	v, cause := &j.view, context.Cause(ctx)
	v.Ended = new(time.Now().UTC())
	switch {
	case err == nil:
		v.State = jobDone
	case errors.Is(cause, errJobCancelled):
		v.State = jobCancelled
	case errors.Is(cause, errJobStopped):
		v.State = jobStopped
	default:
		p := problemOf(err)
		v.State, v.Error, j.err = jobFailed, &jobError{p.Code, p.Detail}, err
	}
	level, stack := slog.LevelInfo, ""
	if caught, ok := errors.AsType[*panics.Error](err); ok {
		level, stack = slog.LevelError, caught.Stack
	} else if v.State == jobFailed {
		level = slog.LevelWarn
	}
	js.logger.Log(ctx, level, "replay job ended", "job", v.ID, "operator", v.Operator, "state", string(v.State), "rows", v.Rows, "parked", v.Parked, "err", err, "stack", stack)
	close(j.done)
}

// planned stores the plan of a job.
func (js *jobs) planned(j *job, p *admin.ReplayPlan) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j.view.Plan = &admin.ReplayPlan{ // without the dead letters themselves
		Pipeline: p.Pipeline, Tables: orEmpty(p.Tables), Count: p.Count, Outcomes: p.Outcomes, Keyed: p.Keyed, Notes: orEmpty(p.Notes),
	}
	if j.view.State == jobPlanning && !j.view.DryRun {
		j.view.State = jobReplaying
	}
}

// progressed stores how far a job is.
func (js *jobs) progressed(j *job, p admin.ReplayProgress) {
	js.mu.Lock()
	defer js.mu.Unlock()
	next := progressOf(p.Result, addCommits(j.view.Tables, p.Result.Commits[j.commits:]))
	next.Handled = p.Done
	j.commits, j.view.jobProgress = len(p.Result.Commits), next
}

// addCommits returns a copy of tables to which commits are added: each table once, with its newest version and the sum
// of its rows.
func addCommits(tables, commits []admin.ReplayCommit) []admin.ReplayCommit {
	tables = slices.Clone(tables)
	for _, c := range commits {
		i := slices.IndexFunc(tables, func(t admin.ReplayCommit) bool { return t.Table == c.Table })
		if i < 0 {
			tables = append(tables, c)
			continue
		}
		tables[i].Version, tables[i].Rows = c.Version, tables[i].Rows+c.Rows
	}
	return tables
}

func progressOf(r *admin.ReplayResult, tables []admin.ReplayCommit) jobProgress {
	p := jobProgress{
		Rows: r.Rows, Failed: map[string]int{}, Parked: r.Parked, LeftOut: map[string]int{}, First: map[string]admin.FirstFail{},
		Tables: orEmpty(tables), Operation: r.Operation,
	}
	maps.Copy(p.Failed, r.Failed)
	maps.Copy(p.First, r.First)
	for why, n := range r.LeftOut {
		p.LeftOut[string(why)] = n
	}
	return p
}

// view returns a job as it is now.
func (js *jobs) view(j *job) Job {
	js.mu.Lock()
	defer js.mu.Unlock()
	return j.view
}

// list returns all jobs.
func (js *jobs) list() (all []Job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.all {
		all = append(all, j.view)
	}
	return all
}

// find returns the job with an id. The error is a problem, not_found, if this member does not know such a job.
func (js *jobs) find(id string) (*job, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.all {
		if j.view.ID == id {
			return j, nil
		}
	}
	return nil, newProblem(codeNotFound, "this member has no such job: each member has its own, and knows its last %d until it stops; GET audit has what all jobs did", keptJobs)
}

// requestCancel cancels a job for an operator. It reports whether the job was running and not cancelled yet.
func (js *jobs) requestCancel(j *job, by admin.By) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	if !j.running() || j.view.State == jobCancelling {
		return false
	}
	j.view.State, j.view.CancelledBy, j.view.CancelReason = jobCancelling, by.Operator, by.Reason
	j.cancel(errJobCancelled)
	return true
}

// stop cancels the running job and lets no other one start. It waits until the job has ended: at most as long as a
// commit that has begun takes.
func (js *jobs) stop() {
	js.mu.Lock()
	js.stopped = true
	for _, j := range js.all {
		j.cancel(errJobStopped)
	}
	js.mu.Unlock()
	js.work.Wait()
}

// Started is the response to a request about one job.
type Started struct {
	DryRun bool `json:"dry_run"`
	Job    *Job `json:"job"`
	// Entry is set instead of Job if the request repeats one whose job this member does not know.
	Entry *admin.RecordedEntry `json:"entry"`
}

// answerJob answers with a job and its location. The status is 202 while the job is running, then 200.
func answerJob(v Job, dryRun bool) (answer, error) {
	a, err := jsonAnswer(Started{DryRun: dryRun, Job: &v})
	a.header = map[string]string{"Location": prefix + "jobs/" + v.ID}
	if v.Ended == nil {
		a.status = http.StatusAccepted
	}
	return a, err
}

func (s *Server) listJobs(r *request) (answer, error) {
	newestFirst := func(j Job) string { return leftPad(math.MaxInt64 - j.number) }
	page, next, err := pageOf(r, s.jobs.list(), newestFirst)
	if err != nil {
		return answer{}, err
	}
	return jsonAnswer(struct {
		Jobs []Job  `json:"jobs"`
		Next string `json:"next,omitempty"`
	}{page, next})
}

func (s *Server) getJob(r *request) (answer, error) {
	j, err := s.jobs.find(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	return jsonAnswer(s.jobs.view(j))
}

// cancelJob cancels a job. A cancellation is no decision about the pipeline, so the log has it, not the operations log.
func (s *Server) cancelJob(r *request) (answer, error) {
	dryRun, err := r.dryRun()
	if err != nil {
		return answer{}, err
	}
	by, err := r.by(common{Reason: r.URL.Query().Get("reason"), DryRun: dryRun})
	if err != nil {
		return answer{}, err
	}
	j, err := s.jobs.find(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	if !dryRun && s.jobs.requestCancel(j, by) {
		s.Logger.InfoContext(r.Context(), "replay job cancelled", "operator", by.Operator, "reason", by.Reason, "job", j.view.ID)
	}
	a, err := answerJob(s.jobs.view(j), dryRun)
	a.status = http.StatusOK
	return a, err
}

// dryRun returns the parameter dry_run.
func (r *request) dryRun() (bool, error) {
	switch r.URL.Query().Get("dry_run") {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, newProblem(codeInvalid, "dry_run is true or false")
}
