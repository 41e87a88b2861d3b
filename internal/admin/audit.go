package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// RecordedEntry is an entry of the operations log with its hash.
type RecordedEntry struct {
	opslog.Entry
	Hash string `json:"hash"`
}

// UnreadableEntry is an object of the operations log that is not a valid entry, and the reason.
type UnreadableEntry struct {
	Seq int64  `json:"seq"`
	Why string `json:"why"`
}

// AuditReport has the entries of the operations log since a time, and its head.
type AuditReport struct {
	Entries    []RecordedEntry   `json:"entries"`
	Unreadable []UnreadableEntry `json:"unreadable,omitempty"`
	Head       *opslog.Head      `json:"head"` // null if the log is empty
}

// Audit returns the operations since a time, and the head of the log.
func Audit(ctx context.Context, a *Access, oldest time.Time) (*AuditReport, error) {
	o, err := openOperations(ctx, a.Config, false)
	if err != nil {
		return nil, err
	}
	defer o.end()
	r := &AuditReport{Entries: []RecordedEntry{}}
	for e, err := range o.Entries(ctx, 1) {
		a.passed(int64(len(r.Entries)), 0)
		broken := (*opslog.BrokenError)(nil)
		switch {
		case errors.As(err, &broken):
			r.Unreadable = append(r.Unreadable, UnreadableEntry{broken.Seq, broken.Why})
			continue
		case err != nil:
			return nil, failedOperation(opslog.Entry{}, err)
		}
		head := e.Head()
		r.Head = &head
		if !e.At.Before(oldest) {
			r.Entries = append(r.Entries, RecordedEntry{e, e.Hash()})
		}
	}
	return r, nil
}

// AuditPage returns at most limit operations from a seq on, and the seq from which the next page reads, 0 at the end of
// the log.
func AuditPage(ctx context.Context, a *Access, from int64, limit int) (r *AuditReport, next int64, err error) {
	o, err := openOperations(ctx, a.Config, false)
	if err != nil {
		return nil, 0, err
	}
	defer o.end()
	r = &AuditReport{Entries: []RecordedEntry{}}
	for e, err := range o.Entries(ctx, from) {
		broken := (*opslog.BrokenError)(nil)
		switch isBroken := errors.As(err, &broken); {
		case err != nil && !isBroken:
			return nil, 0, failedOperation(opslog.Entry{}, err)
		case len(r.Entries)+len(r.Unreadable) == limit:
			return r, e.Seq, nil
		case isBroken:
			r.Unreadable = append(r.Unreadable, UnreadableEntry{broken.Seq, broken.Why})
			continue
		}
		head := e.Head()
		r.Head = &head
		r.Entries = append(r.Entries, RecordedEntry{e, e.Hash()})
	}
	return r, 0, nil
}

// Performed returns the entry of an operation that was recorded with the key of once, nil if the log has none. The
// error is an [opslog.RepeatedError] if the key was that of another request.
func Performed(ctx context.Context, a *Access, once opslog.Once) (*RecordedEntry, error) {
	log, err := a.operations(ctx)
	if err != nil {
		return nil, err
	}
	s, err := log.State(ctx)
	if err != nil {
		return nil, failedOperation(opslog.Entry{}, err)
	}
	repeated := s.Repeated(once, time.Now())
	switch {
	case repeated == nil:
		return nil, nil
	case !repeated.Same:
		return nil, fail.Refused(repeated)
	}
	e, err := log.Entry(ctx, repeated.Seq)
	if err != nil {
		return nil, failedOperation(e, err)
	}
	return &RecordedEntry{e, e.Hash()}, nil
}

// VerifyAudit checks the hash chain of the operations log, and that a head from an earlier audit is in it. The zero
// head skips the second check.
func VerifyAudit(ctx context.Context, a *Access, head opslog.Head) (opslog.Report, error) {
	o, err := openOperations(ctx, a.Config, false)
	if err != nil {
		return opslog.Report{}, err
	}
	defer o.end()
	r, err := o.Verify(ctx, head)
	if err != nil {
		return opslog.Report{}, failedOperation(opslog.Entry{}, err)
	}
	return r, nil
}

// Describe returns what an operation did, as one line for operators.
func Describe(e opslog.Entry) string {
	body, err := e.Decode()
	if err != nil { // a later version of Sluice wrote the entry, so its JSON is shown
		var compact strings.Builder
		_ = json.NewEncoder(&compact).Encode(e.Body) // cannot fail, because the body was parsed from JSON
		return string(e.Kind) + " " + strings.TrimSpace(compact.String())
	}
	switch b := body.(type) {
	case opslog.Pause:
		return "pause " + listTargets(b.Targets)
	case opslog.Resume:
		return "resume " + listTargets(b.Targets)
	case opslog.Recheck:
		return "holds recheck " + listTargets(b.Targets)
	case opslog.Flush:
		return "flush " + listTargets(b.Targets)
	case opslog.FloodAllow:
		return fmt.Sprintf("deadletters allow %s until %s", b.Topic, b.Until.UTC().Format(time.RFC3339))
	case opslog.Forget:
		return fmt.Sprintf("fingerprints reset %s in table %s: %s", b.Topic, b.Table, listBelow(b.Below))
	case opslog.ForgetMembers:
		text := "members cleanup forgets " + strings.Join(b.Members, ", ")
		if b.More > 0 {
			text += fmt.Sprintf(" and %d more", b.More)
		}
		return text
	case opslog.OffsetsIntent:
		return fmt.Sprintf("%s of table %s begins: %s", b.Command, b.Table, listMoves(b.Moves))
	case opslog.OffsetsDone:
		return fmt.Sprintf("%s of table %s: %s: %s", b.Command, b.Table, listMoves(b.Moves), outcomeOf(b.Outcome, b.Version, b.Intent, b.Detail))
	case opslog.SchemaIntent:
		return fmt.Sprintf("table schema apply of table %s begins: %s", b.Table, strings.Join(b.Changes, ", "))
	case opslog.SchemaDone:
		return fmt.Sprintf("table schema apply of table %s: %s: %s", b.Table, strings.Join(b.Changes, ", "), outcomeOf(b.Outcome, b.Version, b.Intent, b.Detail))
	case opslog.Discard:
		return "deadletters discard " + listLetters(b.Letters)
	case opslog.Acknowledge:
		return "deadletters acknowledge " + listLetters(b.Letters)
	case opslog.Reopen:
		return "deadletters reopen " + listLetters(b.Letters)
	case opslog.ReplayFailed:
		return fmt.Sprintf("replay into table %s failed: %s", b.Table, listLetters(b.Letters))
	case opslog.ReplayIntent:
		if b.Withdraws > 0 {
			return fmt.Sprintf("replay into table %s through the topic (operation %d) is withdrawn; the table has accepted %s", b.Table, b.Withdraws, listLetters(b.Accepted))
		}
		if len(b.Letters) == 0 {
			return fmt.Sprintf("replays into table %s that began before are withdrawn", b.Table)
		}
		var text strings.Builder
		how := ""
		if b.Mode == opslog.ByTopic {
			how = " through the topic"
		}
		fmt.Fprintf(&text, "replay into table %s%s begins: %s", b.Table, how, listLetters(b.Letters))
		for _, e := range b.Edited {
			fmt.Fprintf(&text, "; %s:%d@%d with an edited value (SHA-256 %.12s, was %.12s)", e.Topic, e.Partition, e.Offset, e.Now, e.Was)
		}
		return text.String()
	case opslog.ReplayClosed:
		return fmt.Sprintf("replay into table %s through the topic (operation %d): the table has accepted all records", b.Table, b.Intent)
	case opslog.Snapshot:
		return fmt.Sprintf("snapshot of the state at operation %d", b.Of.Seq)
	case opslog.SnapshotPart:
		return fmt.Sprintf("part of a snapshot of the state at operation %d", b.Of.Seq)
	case opslog.ReplayDone:
		outcome := string(b.Outcome)
		if b.Version >= 0 {
			outcome = fmt.Sprintf("version %d", b.Version)
		}
		if b.Detail != "" {
			outcome += ": " + b.Detail
		}
		return fmt.Sprintf("replay into table %s (operation %d): %s", b.Table, b.Intent, outcome)
	}
	return string(e.Kind)
}

// outcomeOf returns the outcome of an operation that commits to a table.
func outcomeOf(o opslog.Outcome, version, intent int64, detail string) string {
	text := fmt.Sprintf("%s (operation %d)", o, intent)
	if o == opslog.Committed {
		text = fmt.Sprintf("version %d (operation %d)", version, intent)
	}
	if detail != "" {
		text += ": " + detail
	}
	return text
}

// listLetters returns a text that names dead letters: by their offsets if there are few, otherwise by their number.
func listLetters(all []opslog.Letters) string {
	n := int64(0)
	var texts []string
	for _, l := range all {
		n += l.Offsets.Len()
		if len(texts) < 3 {
			texts = append(texts, fmt.Sprintf("%s:%d@%s", l.Topic, l.Partition, brief(l.Offsets)))
		}
	}
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, "and "+Counting(int64(more), "partition"))
	}
	return Counting(n, "dead letter") + ": " + strings.Join(texts, ", ")
}

func listMoves(moves []opslog.Move) string {
	var all []string
	for _, m := range moves {
		from := "no position"
		if m.From >= 0 {
			from = fmt.Sprint(m.From)
		}
		all = append(all, fmt.Sprintf("%s:%d from %s to %d", m.Topic, m.Partition, from, m.To))
	}
	return strings.Join(all, ", ")
}
