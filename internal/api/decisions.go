package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/sink/opslog"
)

// common are the fields of every decision.
type common struct {
	Reason string `json:"reason"`
	DryRun bool   `json:"dry_run"`
}

// by returns the caller as the operator of an action, with the reason. A dry run needs no reason.
func (r *request) by(c common) (admin.By, error) {
	by := admin.By{Operator: r.who.name, Reason: c.Reason}
	if err := by.Check(); err != nil && !c.DryRun {
		return admin.By{}, err
	}
	return by, nil
}

// scope are the fields of a decision about topics and partitions.
type scope struct {
	common
	Targets []string `json:"targets"`
	All     bool     `json:"all"`
}

// targets returns the targets of a decision: those that it names, or everything. A topic must be configured, unless
// anyTopic is true.
func (b scope) targets(s *Server, anyTopic bool) ([]opslog.Target, error) {
	if b.All == (len(b.Targets) > 0) {
		return nil, newProblem(codeInvalid, `name targets, such as ["orders", "users:3"], or send "all": true`)
	}
	return admin.ParseTargets(s.config, b.Targets, anyTopic)
}

// plan plans a decision with a function of package admin, such as [admin.PlanPause].
type plan func(ctx context.Context, a *admin.Access) (*admin.Decision, error)

func (s *Server) pause(r *request) (answer, error)   { return s.pausing(r, false, admin.PlanPause) }
func (s *Server) resume(r *request) (answer, error)  { return s.pausing(r, true, admin.PlanResume) }
func (s *Server) recheck(r *request) (answer, error) { return s.pausing(r, false, admin.PlanRecheck) }
func (s *Server) flush(r *request) (answer, error)   { return s.pausing(r, false, admin.PlanFlush) }

func (s *Server) pausing(r *request, anyTopic bool, of func(context.Context, *admin.Access, []opslog.Target) (*admin.Decision, error)) (answer, error) {
	var body scope
	if err := r.decode(&body); err != nil {
		return answer{}, err
	}
	targets, err := body.targets(s, anyTopic)
	if err != nil {
		return answer{}, err
	}
	return s.decision(r, body.common, body, func(ctx context.Context, a *admin.Access) (*admin.Decision, error) { return of(ctx, a, targets) })
}

func (s *Server) allow(r *request) (answer, error) {
	var body allowBody
	if err := r.decode(&body); err != nil {
		return answer{}, err
	}
	lasts, err := time.ParseDuration(body.For)
	if err != nil || lasts < 0 || lasts > admin.LongestAllowance {
		return answer{}, newProblem(codeInvalid, "for is not a duration from 0s to %s", config.FormatDuration(admin.LongestAllowance))
	}
	until := s.now().Add(lasts).UTC().Truncate(time.Second)
	return s.decision(r, body.common, body, func(ctx context.Context, a *admin.Access) (*admin.Decision, error) {
		return admin.PlanAllow(ctx, a, body.Topic, until)
	})
}

// allowBody is the body of a request that allows a flood of dead letters.
type allowBody struct {
	common
	Topic string `json:"topic"`
	For   string `json:"for"`
}

// Decided is the response to a decision.
type Decided struct {
	DryRun  bool                 `json:"dry_run"`
	Changed bool                 `json:"changed"`
	Text    string               `json:"text"`
	Notes   []string             `json:"notes"`
	Plan    any                  `json:"plan"`
	Entry   *admin.RecordedEntry `json:"entry"`
}

// decision plans a decision and, unless it is a dry run, records it in the operations log. A request that repeats an
// earlier one under the same Idempotency-Key gets the entry of the earlier one.
func (s *Server) decision(r *request, c common, body any, of plan) (answer, error) {
	by, err := r.by(c)
	if err != nil {
		return answer{}, err
	}
	once, err := r.once(body)
	if err != nil {
		return answer{}, err
	}
	by.Once = once
	a := s.access(c.DryRun)
	defer a.Close()
	if once != (opslog.Once{}) {
		if e, err := admin.Performed(r.Context(), a, once); e != nil || err != nil {
			return replayed(e, err)
		}
	}
	d, err := of(r.Context(), a)
	if errors.Is(err, admin.ErrNothingToDo) {
		return jsonAnswer(Decided{DryRun: c.DryRun, Text: admin.ErrNothingToDo.Error(), Notes: orEmpty(d.Notes), Plan: d.Plan})
	}
	if err != nil {
		return answer{}, err
	}
	if c.DryRun {
		return jsonAnswer(Decided{DryRun: true, Text: d.Text, Notes: orEmpty(d.Notes), Plan: d.Plan})
	}
	e, err := admin.Record(r.Context(), a, d, by)
	if repeated, ok := errors.AsType[*opslog.RepeatedError](err); ok && repeated.Same { // a request at the same time was first
		return replayed(admin.Performed(r.Context(), a, once))
	}
	if errors.Is(err, admin.ErrNothingToDo) {
		return jsonAnswer(Decided{Text: admin.ErrNothingToDo.Error(), Notes: orEmpty(d.Notes), Plan: d.Plan})
	}
	if err != nil {
		return answer{}, err
	}
	s.Logger.InfoContext(r.Context(), "operator decided", "operator", by.Operator, "operation", e.Seq, "kind", string(e.Kind), "text", d.Done)
	return jsonAnswer(Decided{Changed: true, Text: d.Done, Notes: orEmpty(d.Notes), Plan: d.Plan, Entry: &e})
}

// replayed answers with the entry of an earlier request.
func replayed(e *admin.RecordedEntry, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	a, err := jsonAnswer(Decided{Changed: true, Text: admin.Describe(e.Entry), Notes: []string{}, Entry: e})
	a.header = map[string]string{"Idempotent-Replayed": "true"}
	return a, err
}

// orEmpty returns a list for JSON, in which nil would be null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// longestKey bounds an Idempotency-Key, in bytes.
const longestKey = 200

// once returns the hashes of the request's Idempotency-Key and of what it requests, zero without a key. The name of the
// operator is a part of the key, so that two operators may choose the same one.
func (r *request) once(body any) (opslog.Once, error) {
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return opslog.Once{}, nil
	}
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > longestKey || strings.ContainsFunc(keys[0], func(c rune) bool { return c < ' ' || c > '~' }) {
		return opslog.Once{}, newProblem(codeInvalid, "Idempotency-Key is not one text of 1 to %d printable ASCII characters, such as a UUID", longestKey)
	}
	requested, err := json.Marshal(body)
	if err != nil {
		return opslog.Once{}, fmt.Errorf("encode the request: %w", err)
	}
	return opslog.Once{
		Key:     hashed(r.who.name, keys[0]),
		Request: hashed(r.route.name(), string(requested)),
	}, nil
}

func hashed(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
