package opslog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Kind is the kind of an operation.
type Kind string

// The kinds that this version knows. Entries of other kinds come from later versions: they are kept and listed, and
// have no effect.
const (
	KindPause         Kind = "pause"
	KindResume        Kind = "resume"
	KindOffsetsIntent Kind = "offsets.intent"
	KindOffsetsDone   Kind = "offsets.done"
	KindFloodAllow    Kind = "flood.allow"
	KindForget        Kind = "fingerprints.reset"
	KindForgetMembers Kind = "members.cleanup"
	KindRecheck       Kind = "holds.recheck"
	KindFlush         Kind = "flush"
	KindDiscard       Kind = "letters.discard"
	KindAcknowledge   Kind = "letters.acknowledge"
	KindReopen        Kind = "letters.reopen"
	KindReplayIntent  Kind = "letters.replay.intent"
	KindReplayDone    Kind = "letters.replay.done"
	KindReplayClosed  Kind = "letters.replay.closed"
	KindReplayFailed  Kind = "letters.replay.failed"
	KindSnapshot      Kind = "snapshot"
	KindSnapshotPart  Kind = "snapshot.part"
)

// Operation is a decision of an operator, to be appended. The type of Body decides its kind.
type Operation struct {
	Operator string // name of the operator, who requested the operation; never empty
	Host     string // host on which the command ran; may be empty
	Reason   string // why the operator requested it; never empty
	Once     Once   // zero if the operation may be repeated
	Body     Body
}

// Entry is an operation as stored in the log.
type Entry struct {
	Seq      int64           `json:"seq"`
	ID       string          `json:"id"`
	Prev     string          `json:"prev"` // SHA-256 of the object of the entry before, in hex; empty in the first entry
	At       time.Time       `json:"at"`   // time by the clock of the host that wrote the entry
	Operator string          `json:"operator"`
	Host     string          `json:"host,omitempty"`
	Kind     Kind            `json:"kind"`
	Reason   string          `json:"reason"`
	Once     *Once           `json:"once,omitempty"`
	Snapshot int64           `json:"snapshot,omitempty"` // seq of the newest [Snapshot] before this entry, 0 if there is none
	Body     json.RawMessage `json:"body"`

	hash string
}

// Hash returns the SHA-256 of the entry's object in hex, which the next entry names as Prev.
func (e Entry) Hash() string { return e.hash }

// Head returns the seq and hash of the entry.
func (e Entry) Head() Head { return Head{e.Seq, e.hash} }

// Decode returns the body. The error is [ErrUnknownKind] if the kind comes from a later version.
func (e Entry) Decode() (Body, error) { return decodeBody(e.Kind, e.Body) }

// Head identifies the last entry of a log by seq and hash. An empty log has the zero Head.
type Head struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// String returns the form that [ParseHead] reads: 12:ab34….
func (h Head) String() string { return strconv.FormatInt(h.Seq, 10) + ":" + h.Hash }

// ParseHead parses SEQ:HASH.
func ParseHead(text string) (Head, error) {
	number, hash, found := strings.Cut(text, ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || seq < 1 || seq > maxSeq || !isHash(hash) {
		return Head{}, fmt.Errorf("%q is no head of an operations log: write SEQ:HASH as audit list prints it", text)
	}
	return Head{seq, hash}, nil
}

func isHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && strings.ToLower(s) == s
}

func hashOf(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:])
}

// MaxEntry is the largest size of an entry in bytes. A larger object is not an entry.
const MaxEntry = 1 << 20

const (
	sumBefore = `,"sum":"`
	sumAfter  = "\"}\n"
)

// encode returns the object of an entry, or an error if it exceeds [MaxEntry].
func encode(e Entry) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("encode the entry: %w", err)
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("}\n"))
	sum := hashOf(text)
	text = append(append(append(text, sumBefore...), sum...), sumAfter...)
	if len(text) > MaxEntry {
		return nil, fmt.Errorf("an entry of %d bytes is larger than %d", len(text), MaxEntry)
	}
	return text, nil
}

// parse parses the object of an entry. The error says what is wrong and never quotes the object's bytes.
func parse(object []byte) (Entry, error) {
	if len(object) > MaxEntry {
		return Entry{}, fmt.Errorf("it is larger than %d bytes", MaxEntry)
	}
	end := len(object) - len(sumBefore) - 2*sha256.Size - len(sumAfter)
	if end < 0 || !bytes.HasPrefix(object[end:], []byte(sumBefore)) || !bytes.HasSuffix(object, []byte(sumAfter)) {
		return Entry{}, errors.New("it does not end with its sum")
	}
	if sum := object[end+len(sumBefore) : len(object)-len(sumAfter)]; string(sum) != hashOf(object[:end]) {
		return Entry{}, errors.New("its bytes are not those that its sum was made of")
	}
	var e Entry
	if err := json.Unmarshal(object, &e); err != nil {
		return Entry{}, errors.New("it is not the JSON of an entry")
	}
	e.hash = hashOf(object)
	return e, e.check()
}

// check validates the fields of an entry.
func (e Entry) check() error {
	switch id, err := uuid.Parse(e.ID); {
	case e.Seq < 1 || e.Seq > maxSeq:
		return fmt.Errorf("seq %d is not within 1 and %d", e.Seq, int64(maxSeq))
	case err != nil || id.String() != e.ID:
		return errors.New("its id is no UUID")
	case (e.Prev == "") != (e.Seq == 1), e.Prev != "" && !isHash(e.Prev):
		return errors.New("its prev is no hash of the entry before")
	case e.Snapshot < 0 || e.Snapshot >= e.Seq:
		return errors.New("its snapshot is no entry before it")
	case e.At.IsZero():
		return errors.New("it does not say when")
	case e.Operator == "":
		return errors.New("it does not say who")
	case e.Reason == "":
		return errors.New("it does not say why")
	case e.Kind == "":
		return errors.New("it does not say what")
	}
	if _, err := e.Decode(); err != nil && !errors.Is(err, ErrUnknownKind) {
		return fmt.Errorf("its body is none of %q: %w", e.Kind, err)
	}
	return nil
}

const (
	digits = 20
	// maxSeq is the largest seq of an entry. JSON readers represent every integer up to it exactly, and no real log
	// reaches it.
	maxSeq = 1<<53 - 1
)

// dir returns the directory of a pipeline's entries.
func dir(pipeline string) string { return "_sluice/" + pipeline + "/ops/" }

// name returns the object name of a seq. The name of seq 0 sorts before all others.
func name(seq int64) string { return fmt.Sprintf("%0*d.json", digits, seq) }

// seqOf parses an object name. ok is false for a name that this package does not write, including one with a seq
// above maxSeq. Such an object is foreign: it neither hides entries nor makes earlier ones count as missing.
func seqOf(s string) (seq int64, ok bool) {
	number, ok := strings.CutSuffix(s, ".json")
	seq, err := strconv.ParseInt(number, 10, 64)
	return seq, ok && err == nil && 1 <= seq && seq <= maxSeq && name(seq) == s
}

// compareTargets orders targets by topic. The target of everything comes first, and a topic comes before its
// partitions.
func compareTargets(a, b Target) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
