package opslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Body is the part of an operation that depends on its kind: [Pause], [Resume], [OffsetsIntent], [OffsetsDone],
// [FloodAllow], [Forget], [ForgetMembers], [Recheck], [Flush], [Discard], [Acknowledge], [Reopen], [ReplayIntent],
// [ReplayDone], [ReplayClosed], [ReplayFailed], [Snapshot] or [SnapshotPart].
type Body interface {
	Kind() Kind
	check() error
}

// ErrUnknownKind means that a later version wrote the entry.
var ErrUnknownKind = errors.New("unknown kind of operation")

// Target is the scope of a pause: one partition, a whole topic, or everything.
type Target struct {
	Topic     string // "" means everything
	Partition int32  // -1 means the whole topic
}

// All returns the target of everything that the pipeline reads, now and later.
func All() Target { return Target{"", -1} }

// Topic returns the target of a whole topic.
func Topic(name string) Target { return Target{name, -1} }

// ParseTarget parses TOPIC or TOPIC:PARTITION. Topic names never contain a colon.
func ParseTarget(text string) (Target, error) {
	topic, number, found := strings.Cut(text, ":")
	t := Topic(topic)
	if found {
		id, err := strconv.ParseInt(number, 10, 32)
		if err != nil || id < 0 {
			return Target{}, fmt.Errorf("%q names no partition: write TOPIC or TOPIC:PARTITION, such as orders:3", text)
		}
		t.Partition = int32(id)
	}
	if topic == "" {
		return Target{}, fmt.Errorf("%q names no topic: write TOPIC or TOPIC:PARTITION, such as orders:3", text)
	}
	return t, nil
}

// String returns orders, orders:3 or "everything".
func (t Target) String() string {
	switch {
	case t == All():
		return "everything"
	case t.Partition < 0:
		return t.Topic
	}
	return t.Topic + ":" + strconv.Itoa(int(t.Partition))
}

// covers reports whether other is t or a part of it.
func (t Target) covers(other Target) bool {
	return t == All() || t == other || t.Partition < 0 && t.Topic == other.Topic
}

type targetJSON struct {
	All       bool   `json:"all,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
}

// MarshalJSON writes {"all":true}, {"topic":"orders"} or {"topic":"orders","partition":3}.
func (t Target) MarshalJSON() ([]byte, error) {
	j := targetJSON{All: t == All(), Topic: t.Topic}
	if t.Partition >= 0 {
		j.Partition = &t.Partition
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads the form that MarshalJSON writes.
func (t *Target) UnmarshalJSON(b []byte) error {
	var j targetJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if j.All == (j.Topic != "") || j.Topic == "" && j.Partition != nil || j.Partition != nil && *j.Partition < 0 {
		return errors.New("a target names a topic, a partition of a topic, or all")
	}
	*t = Topic(j.Topic)
	if j.Partition != nil {
		t.Partition = *j.Partition
	}
	return nil
}

// Pause stops reading its targets. Records read before it are still committed; positions do not move.
type Pause struct {
	Targets []Target `json:"targets"`
}

// Resume ends the pauses of its targets and of their parts: resuming a topic resumes its partitions.
type Resume struct {
	Targets []Target `json:"targets"`
}

// Move is a position before and after an operation. From is -1 if there was no position before.
type Move struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id,omitempty"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

// OffsetsIntent is written before a command moves positions in the log of a table.
type OffsetsIntent struct {
	Command string `json:"command"` // the command, such as "offsets set"
	Table   string `json:"table"`
	Moves   []Move `json:"moves"`
}

// OffsetsDone records the outcome of an [OffsetsIntent]. If it is missing, only the table's log shows the outcome.
type OffsetsDone struct {
	Intent  int64   `json:"intent"` // seq of the [OffsetsIntent] that has this outcome
	Command string  `json:"command"`
	Table   string  `json:"table"`
	Moves   []Move  `json:"moves"`
	Version int64   `json:"version"` // table version that moved the positions or may have moved them; -1 if there is none
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail,omitempty"` // reason of the outcome, unless it is "won"
}

// FloodAllow lets any number of a topic's bad records become dead letters until a time. The newest one of a topic is
// in force, so one with a time in the past revokes the one before it.
type FloodAllow struct {
	Topic string    `json:"topic"`
	Until time.Time `json:"until"` // by the clock of the writing host
}

// Forget makes the fingerprints of the rows below the given offsets no longer count, so that a record equal to one of
// these rows is no duplicate. Records from those offsets on are fingerprinted as usual.
type Forget struct {
	Topic string  `json:"topic"`
	Table string  `json:"table"`
	Below []Below `json:"below"`
}

// Below is an offset of a partition.
type Below struct {
	TopicID   string `json:"topic_id,omitempty"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// ForgetMembers records that members without a registration are deleted from the last-seen index, so that they no
// longer count as missing. The command writes it before it changes the store of registrations. It does not affect the
// state of a pipeline.
type ForgetMembers struct {
	Members []string `json:"members"`        // ids of members
	More    int      `json:"more,omitempty"` // number of members that the list leaves out
}

// Recheck asks members to check the holds of the targets at once, before their next check is due.
type Recheck struct {
	Targets []Target `json:"targets"`
}

// Flush asks members to commit at once what they have enqueued of the targets, before it is due. Each target is a topic
// or everything.
type Flush struct {
	Targets []Target `json:"targets"`
}

// Outcome is the result of a commit. Its values in the log differ from the names of the constants, because the values
// are older and must not change.
type Outcome string

// The outcomes.
const (
	Committed Outcome = "won"     // the positions are moved, or the rows of a replay are added
	Conflict  Outcome = "lost"    // the commit of the operation had no effect and never will have one
	Unknown   Outcome = "unknown" // unknown to the writer of the entry: only the table's log shows the outcome
)

// Kind implements [Body].
func (Pause) Kind() Kind { return KindPause }

// Kind implements [Body].
func (Resume) Kind() Kind { return KindResume }

// Kind implements [Body].
func (OffsetsIntent) Kind() Kind { return KindOffsetsIntent }

// Kind implements [Body].
func (OffsetsDone) Kind() Kind { return KindOffsetsDone }

// Kind implements [Body].
func (FloodAllow) Kind() Kind { return KindFloodAllow }

// Kind implements [Body].
func (Forget) Kind() Kind { return KindForget }

// Kind implements [Body].
func (ForgetMembers) Kind() Kind { return KindForgetMembers }

// Kind implements [Body].
func (Recheck) Kind() Kind { return KindRecheck }

// Kind implements [Body].
func (Flush) Kind() Kind { return KindFlush }

func (r Recheck) check() error { return checkTargets(r.Targets) }

func (f Flush) check() error {
	for _, t := range f.Targets {
		if t.Partition >= 0 {
			return fmt.Errorf("target %v is a partition: a batch has all partitions of a table", t)
		}
	}
	return checkTargets(f.Targets)
}

func (f ForgetMembers) check() error {
	if len(f.Members) == 0 || slices.Contains(f.Members, "") {
		return errors.New("it names no member, or one without an id")
	}
	return nil
}

func (f Forget) check() error {
	switch {
	case f.Topic == "":
		return errors.New("the topic is missing")
	case f.Table == "":
		return errors.New("the table is missing")
	case len(f.Below) == 0:
		return errors.New("there is no partition")
	}
	for _, b := range f.Below {
		if b.Partition < 0 || b.Offset < 0 {
			return fmt.Errorf("%+v is no offset of a partition", b)
		}
	}
	return nil
}

func (p Pause) check() error  { return checkTargets(p.Targets) }
func (r Resume) check() error { return checkTargets(r.Targets) }

func (i OffsetsIntent) check() error { return checkMoves(i.Command, i.Table, i.Moves) }

func (f FloodAllow) check() error {
	switch {
	case f.Topic == "":
		return errors.New("the topic is missing")
	case f.Until.IsZero():
		return errors.New("it does not say until when")
	}
	return nil
}

func (d OffsetsDone) check() error {
	switch d.Outcome {
	case Committed, Conflict, Unknown:
	default:
		return fmt.Errorf("outcome %q is none of won, lost and unknown", d.Outcome)
	}
	if d.Intent < 1 {
		return errors.New("the intent is missing")
	}
	return checkMoves(d.Command, d.Table, d.Moves)
}

func checkTargets(targets []Target) error {
	if len(targets) == 0 {
		return errors.New("there is no target")
	}
	for _, t := range targets {
		if t.Partition < -1 || t.Topic == "" && t != All() {
			return fmt.Errorf("target %+v names no topic", t)
		}
	}
	return nil
}

func checkMoves(command, table string, moves []Move) error {
	switch {
	case command == "":
		return errors.New("the command is missing")
	case table == "":
		return errors.New("the table is missing")
	case len(moves) == 0:
		return errors.New("there is no move")
	}
	for _, m := range moves {
		if m.Topic == "" || m.Partition < 0 || m.From < -1 || m.To < 0 {
			return fmt.Errorf("move %+v is none from one offset of a partition to another", m)
		}
	}
	return nil
}

// decodeBody decodes the body of a kind.
func decodeBody(k Kind, raw json.RawMessage) (Body, error) {
	switch k {
	case KindPause:
		return decodeAs[Pause](raw)
	case KindResume:
		return decodeAs[Resume](raw)
	case KindOffsetsIntent:
		return decodeAs[OffsetsIntent](raw)
	case KindOffsetsDone:
		return decodeAs[OffsetsDone](raw)
	case KindFloodAllow:
		return decodeAs[FloodAllow](raw)
	case KindForget:
		return decodeAs[Forget](raw)
	case KindForgetMembers:
		return decodeAs[ForgetMembers](raw)
	case KindRecheck:
		return decodeAs[Recheck](raw)
	case KindFlush:
		return decodeAs[Flush](raw)
	case KindDiscard:
		return decodeAs[Discard](raw)
	case KindAcknowledge:
		return decodeAs[Acknowledge](raw)
	case KindReopen:
		return decodeAs[Reopen](raw)
	case KindReplayIntent:
		return decodeAs[ReplayIntent](raw)
	case KindReplayDone:
		return decodeAs[ReplayDone](raw)
	case KindReplayClosed:
		return decodeAs[ReplayClosed](raw)
	case KindReplayFailed:
		return decodeAs[ReplayFailed](raw)
	case KindSnapshot:
		return decodeAs[Snapshot](raw)
	case KindSnapshotPart:
		return decodeAs[SnapshotPart](raw)
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownKind, k)
}

func decodeAs[B Body](raw json.RawMessage) (Body, error) {
	var b B
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&b); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after it")
	}
	return b, b.check()
}

func marshal(b Body) (json.RawMessage, error) {
	raw, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode the body: %w", err)
	}
	return raw, nil
}
