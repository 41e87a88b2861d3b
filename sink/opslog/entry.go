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

// Kind says what an operator did.
type Kind string

// The kinds of this version. Entries of other kinds are of later versions: kept, shown, and without effect here.
const (
	KindPause         Kind = "pause"
	KindResume        Kind = "resume"
	KindOffsetsIntent Kind = "offsets.intent"
	KindOffsetsDone   Kind = "offsets.done"
	KindFloodAllow    Kind = "flood.allow"
	KindForget        Kind = "fingerprints.reset"
	KindForgetMembers Kind = "members.cleanup"
	KindRecheck       Kind = "holds.recheck"
)

// Operation is what an operator wants to be known of. Its kind is that of Body.
type Operation struct {
	Operator string // who; never empty
	Host     string // where the command ran, may be empty
	Reason   string // why; never empty
	Body     Body
}

// Entry is an operation as the log has it.
type Entry struct {
	Seq      int64           `json:"seq"`
	ID       string          `json:"id"`
	Prev     string          `json:"prev"` // SHA-256 of the entry before, in hex; empty in the first
	At       time.Time       `json:"at"`   // by the clock of who wrote it
	Operator string          `json:"operator"`
	Host     string          `json:"host,omitempty"`
	Kind     Kind            `json:"kind"`
	Reason   string          `json:"reason"`
	Body     json.RawMessage `json:"body"`

	hash string
}

// Hash is the SHA-256 of the entry's object in hex: what the next entry names as Prev.
func (e Entry) Hash() string { return e.hash }

// Head is the entry as the end of the log.
func (e Entry) Head() Head { return Head{e.Seq, e.hash} }

// Decode returns the body, [ErrUnknownKind] if the kind is of a later version.
func (e Entry) Decode() (Body, error) { return decodeBody(e.Kind, e.Body) }

// Head is an entry known to be in the log, by its hash. The zero Head is the empty log.
type Head struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// String returns the form that ParseHead reads: 12:ab34….
func (h Head) String() string { return strconv.FormatInt(h.Seq, 10) + ":" + h.Hash }

// ParseHead reads SEQ:HASH.
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

// MaxEntry is the largest size of an entry in bytes. What is larger is none.
const MaxEntry = 1 << 20

const (
	sumBefore = `,"sum":"`
	sumAfter  = "\"}\n"
)

// encode returns the object of an entry.
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

// parse reads the object of an entry. The error says what is wrong with it, never with its bytes.
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

// check holds the fields of an entry against their rules.
func (e Entry) check() error {
	switch id, err := uuid.Parse(e.ID); {
	case e.Seq < 1 || e.Seq > maxSeq:
		return fmt.Errorf("seq %d is not within 1 and %d", e.Seq, int64(maxSeq))
	case err != nil || id.String() != e.ID:
		return errors.New("its id is no UUID")
	case (e.Prev == "") != (e.Seq == 1), e.Prev != "" && !isHash(e.Prev):
		return errors.New("its prev is no hash of the entry before")
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
	// maxSeq is the largest seq of an entry: every number up to it is exact in each reader's JSON, and no log reaches it.
	maxSeq = 1<<53 - 1
)

// dir is where the entries of a pipeline are.
func dir(pipeline string) string { return "_sluice/" + pipeline + "/ops/" }

// name is the name of an entry's object. Seq 0 sorts before all of them.
func name(seq int64) string { return fmt.Sprintf("%0*d.json", digits, seq) }

// seqOf reads a name. Names that this package does not write have none, those with a seq that no log reaches among them: such
// an object is no entry, so that it hides none and none is missing before it.
func seqOf(s string) (seq int64, ok bool) {
	number, ok := strings.CutSuffix(s, ".json")
	seq, err := strconv.ParseInt(number, 10, 64)
	return seq, ok && err == nil && 1 <= seq && seq <= maxSeq && name(seq) == s
}

// compareTargets orders all before topics, and topics before their partitions.
func compareTargets(a, b Target) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
