package opslog

import (
	"errors"
	"fmt"

	"sluice/idempotency"
	"sluice/idempotency/offsets"
)

// Letters identify dead letters of one partition by the offsets of their records.
type Letters struct {
	Cluster   string      `json:"cluster,omitempty"`
	Topic     string      `json:"topic"`
	TopicID   string      `json:"topic_id"` // Kafka's topic id, "-" if unknown
	Partition int32       `json:"partition"`
	Offsets   offsets.Set `json:"offsets"` // as text in JSON, such as "12-15,20"
}

// LettersOf returns the dead letters of a partition at some offsets.
func LettersOf(p idempotency.Partition, at offsets.Set) Letters {
	return Letters{Cluster: p.Cluster, Topic: p.Topic, TopicID: p.TopicID.String(), Partition: p.ID, Offsets: at}
}

// Source returns the partition of the records.
func (l Letters) Source() idempotency.Partition {
	id, _ := idempotency.ParseTopicID(l.TopicID) // cannot fail: check refuses an invalid id
	return idempotency.Partition{Cluster: l.Cluster, Topic: l.Topic, TopicID: id, ID: l.Partition}
}

// MaxLetters is the largest number of dead letters that one entry may name. More need several entries.
const MaxLetters = 50_000

// Discard says that the records of dead letters shall never become rows, unless a [Reopen] takes it back.
type Discard struct {
	Letters []Letters `json:"letters"`
}

// Acknowledge takes dead letters out of the count of unresolved ones, so that they cause no alarm. A replay may still
// make rows of them.
type Acknowledge struct {
	Letters []Letters `json:"letters"`
}

// Reopen takes back each [Discard] and [Acknowledge] of dead letters.
type Reopen struct {
	Letters []Letters `json:"letters"`
}

// ReplayFailed records that an attempt to replay dead letters failed, because their records still cannot become rows.
// Each one counts for [MaxReplays].
type ReplayFailed struct {
	Table   string    `json:"table"`
	Letters []Letters `json:"letters"`
}

// ReplayIntent is written before a commit of a table adds the rows of dead letters. The commit sets the table's txn for
// replays (see [idempotency.ReplayAppID]) from After to the seq of this entry, so that the table alone shows whether
// the intent was committed. An intent without dead letters is committed without rows: it makes sure that no commit of
// an earlier open intent can still take effect.
type ReplayIntent struct {
	Table   string     `json:"table"`
	TableID string     `json:"table_id"`
	After   int64      `json:"after"` // version of the table's replay txn that the commit expects, 0 if the table has none
	Mode    ReplayMode `json:"mode,omitempty"`
	Letters []Letters  `json:"letters"`
	// Withdraws is the seq of an open intent with [ByTopic] that the commit closes, 0 if it closes none. Accepted are
	// the dead letters of the closed intent whose records the table has accepted. The commit requires that the table
	// has accepted no other records of that intent.
	Withdraws int64     `json:"withdraws,omitempty"`
	Accepted  []Letters `json:"accepted,omitempty"`
	// Edited are the records that are replayed with another value than their dead letter has.
	Edited []EditedValue `json:"edited,omitempty"`
}

// ReplayMode is how a replay makes rows.
type ReplayMode string

// The modes of a replay.
const (
	Direct ReplayMode = "" // the commit of the intent adds the rows
	// ByTopic: the commit opens the intent. Then the replay produces the records to their topic, and members make the
	// rows. A [ReplayClosed] or a withdrawal ends the intent.
	ByTopic ReplayMode = "topic"
)

// ReplayClosed says that the table has accepted the records of all dead letters of an open [ReplayIntent] with
// [ByTopic].
type ReplayClosed struct {
	Intent int64  `json:"intent"` // seq of the [ReplayIntent]
	Table  string `json:"table"`
}

// EditedValue names a record with an edited value, and the SHA-256 of both values in hex.
type EditedValue struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Was       string `json:"was"`
	Now       string `json:"now"`
}

// ReplayDone records the outcome of a [ReplayIntent].
type ReplayDone struct {
	Intent  int64   `json:"intent"` // seq of the [ReplayIntent] that has this outcome
	Table   string  `json:"table"`
	Outcome Outcome `json:"outcome"` // [Committed] or [Conflict]
	Version int64   `json:"version"` // table version that has the rows, -1 if it is unknown or there is none
	Detail  string  `json:"detail,omitempty"`
}

// Kind implements [Body].
func (Discard) Kind() Kind { return KindDiscard }

// Kind implements [Body].
func (Acknowledge) Kind() Kind { return KindAcknowledge }

// Kind implements [Body].
func (Reopen) Kind() Kind { return KindReopen }

// Kind implements [Body].
func (ReplayClosed) Kind() Kind { return KindReplayClosed }

// Kind implements [Body].
func (ReplayFailed) Kind() Kind { return KindReplayFailed }

// Kind implements [Body].
func (ReplayIntent) Kind() Kind { return KindReplayIntent }

// Kind implements [Body].
func (ReplayDone) Kind() Kind { return KindReplayDone }

func (d Discard) check() error     { return checkLetters(d.Letters, 1) }
func (a Acknowledge) check() error { return checkLetters(a.Letters, 1) }
func (r Reopen) check() error      { return checkLetters(r.Letters, 1) }

func (f ReplayFailed) check() error {
	if f.Table == "" {
		return errors.New("the table is missing")
	}
	return checkLetters(f.Letters, 1)
}

func (i ReplayIntent) check() error {
	switch {
	case i.Table == "":
		return errors.New("the table is missing")
	case i.TableID == "":
		return errors.New("the table id is missing")
	case i.After < 0:
		return fmt.Errorf("%d is no txn of a replay", i.After)
	case i.Mode != Direct && i.Mode != ByTopic:
		return fmt.Errorf("%q is no mode of a replay", i.Mode)
	case i.Mode == ByTopic && len(i.Letters) == 0:
		return errors.New("it names no dead letter")
	case i.Withdraws < 0 || i.Withdraws > 0 && len(i.Letters) > 0:
		return fmt.Errorf("an intent that withdraws %d makes no rows", i.Withdraws)
	case i.Withdraws == 0 && len(i.Accepted) > 0:
		return errors.New("only a withdrawal names accepted dead letters")
	}
	return errors.Join(checkLetters(i.Letters, 0), checkLetters(i.Accepted, 0))
}

func (c ReplayClosed) check() error {
	switch {
	case c.Intent < 1:
		return errors.New("the intent is missing")
	case c.Table == "":
		return errors.New("the table is missing")
	}
	return nil
}

func (d ReplayDone) check() error {
	switch {
	case d.Intent < 1:
		return errors.New("the intent is missing")
	case d.Table == "":
		return errors.New("the table is missing")
	case d.Outcome != Committed && d.Outcome != Conflict:
		return fmt.Errorf("outcome %q is none of won and lost", d.Outcome)
	}
	return nil
}

// checkLetters returns an error if the list all names fewer partitions than the given number, an invalid partition, a
// partition without offsets, or more than [MaxLetters] dead letters.
func checkLetters(all []Letters, partitions int) error {
	if len(all) < partitions {
		return errors.New("it names no dead letter")
	}
	n := int64(0)
	for _, l := range all {
		if _, err := idempotency.ParseTopicID(l.TopicID); err != nil {
			return err
		}
		if l.Topic == "" || l.Partition < 0 {
			return fmt.Errorf("%s:%d is no partition of a topic", l.Topic, l.Partition)
		}
		if l.Offsets.Len() == 0 {
			return fmt.Errorf("it names no dead letter of %s:%d", l.Topic, l.Partition)
		}
		if n += l.Offsets.Len(); n > MaxLetters || l.Offsets.Len() > MaxLetters {
			return fmt.Errorf("it names more than %d dead letters", MaxLetters)
		}
	}
	return nil
}
