package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"sluice/idempotency"
)

// BatchOverhead is what a record batch takes beside its records (Kafka's format, magic 2), in bytes.
const BatchOverhead = 61

// Size is what the record takes in a record batch, at most; its timestamp and offset may come out shorter. A topic's
// max.message.bytes is about a whole batch: compare it with BatchOverhead + Size.
func (r *Record) Size() int {
	n := 1 + 10 + 5 // attributes, differences of timestamp and offset
	n += sized(len(r.Key)) + sized(len(r.Value)) + varint(len(r.Headers))
	for _, h := range r.Headers {
		n += sized(len(h.Key)) + sized(len(h.Value))
	}
	return sized(n)
}

// sized is the size of n bytes behind their length.
func sized(n int) int { return varint(n) + n }

// varint is the size of a length in zigzag encoding.
func varint(n int) int {
	size := 1
	for z := uint64(n) << 1; z >= 0x80; z >>= 7 { //nolint:gosec // a length
		size++
	}
	return size
}

// Object is what must be stored before a letter with a link is written. It holds the whole record: one line of JSON with
// the key and the headers in base64 and the length of the value, then a line feed, then the bytes of the value:
//
//	{"version":"1.0","key":"aw==","headers":[{"key":"aA==","value":null}],"value_bytes":5}
//	value
//
// A null value has a value_bytes of null. The same record always makes the same object, under the same key.
type Object struct {
	Key   string
	Bytes []byte
}

// objectHead is the first line of an object. JSON writes bytes in base64 and nil as null.
type objectHead struct {
	Version    string         `json:"version"`
	Key        []byte         `json:"key"`
	Headers    []objectHeader `json:"headers"`
	ValueBytes *int           `json:"value_bytes"`
}

type objectHeader struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// LinkKey is the key of the object that holds the record with these coordinates:
// _sluice/<pipeline>/letters/<cluster>/<topic>/<topic id>/<partition>/<offset>.
func LinkKey(pipeline string, c idempotency.Coordinates) string {
	return "_sluice/" + escape(pipeline) + linkPath(c)
}

func linkPath(c idempotency.Coordinates) string {
	return strings.Join([]string{
		"/letters", escape(c.Cluster), escape(c.Topic), c.TopicID.String(), strconv.Itoa(int(c.ID)), strconv.FormatInt(c.Offset, 10),
	}, "/")
}

// escape makes one part of a key out of a text.
func escape(s string) string {
	switch s {
	case "":
		return "-"
	case "-", ".", "..": // must be taken neither for the unknown one nor for a folder
		return strings.ReplaceAll(strings.ReplaceAll(s, "-", "%2D"), ".", "%2E")
	}
	return url.QueryEscape(s)
}

// of reports whether a link can belong to a record, of any pipeline. Readers fetch the object that it names.
func (k Link) of(c idempotency.Coordinates) bool {
	pipeline, ok := strings.CutPrefix(k.Key, "_sluice/")
	pipeline, path := strings.TrimSuffix(pipeline, linkPath(c)), strings.HasSuffix(pipeline, linkPath(c))
	sum, err := hex.DecodeString(k.SHA256)
	return ok && path && pipeline != "" && pipeline != "." && pipeline != ".." && !strings.ContainsAny(pipeline, "/\\\x00") &&
		k.Bytes > 0 && err == nil && len(sum) == sha256.Size
}

// ErrNoRoom says that a topic takes not even a letter that only links its record.
var ErrNoRoom = errors.New("no room for a dead letter")

// Fit returns a record for a letter whose record batch has at most limit bytes. What does not fit goes in this order: the
// trace, then the message; then the value goes into an object that the letter links, with as much of the texts as there
// is room for; then the key and the headers follow the value. Nothing of the record is ever cut. The object is nil if
// none is needed.
func (f Form) Fit(l Letter, limit int) (Record, *Object, error) {
	room := limit - BatchOverhead
	if len(l.Key)+len(l.Value) <= room {
		if r, ok := f.shrink(l, room); ok {
			return r, nil, nil
		}
	}
	o := f.object(l)
	sum := sha256.Sum256(o.Bytes)
	l.Value, l.Link = nil, Link{Key: o.Key, Bytes: int64(len(o.Bytes)), SHA256: hex.EncodeToString(sum[:])}
	if r, ok := f.shrink(l, room); ok {
		return r, o, nil
	}
	l.Key, l.Headers, l.Link.Record = nil, nil, true
	r, ok := f.shrink(l, room)
	if !ok {
		return Record{}, nil, fmt.Errorf("%w: a record batch of at most %d bytes is allowed, %d are needed", ErrNoRoom, limit, BatchOverhead+r.Size())
	}
	return r, o, nil
}

// shrink cuts the texts of a letter as little as it must. It tells whether the record has room.
func (f Form) shrink(l Letter, room int) (Record, bool) {
	var r Record
	for _, keep := range [...]struct{ trace, detail int }{
		{maxTrace, maxDetail}, {maxTrace / 2, maxDetail}, {0, maxDetail}, {0, maxDetail / 4}, {0, 0},
	} {
		short := l
		short.Trace, short.Detail = truncate(l.Trace, keep.trace), truncate(l.Detail, keep.detail)
		if r = f.Encode(short); r.Size() <= room {
			return r, true
		}
	}
	return r, false
}

func (f Form) object(l Letter) *Object {
	head := objectHead{Version: Version, Key: l.Key, Headers: []objectHeader{}}
	if l.Value != nil {
		n := len(l.Value)
		head.ValueBytes = &n
	}
	for _, h := range l.Headers {
		head.Headers = append(head.Headers, objectHeader{[]byte(h.Key), h.Value})
	}
	line, err := json.Marshal(head)
	if err != nil { // it holds bytes and numbers only
		panic(err)
	}
	b := make([]byte, 0, len(line)+1+len(l.Value))
	b = append(append(append(b, line...), '\n'), l.Value...)
	return &Object{Key: LinkKey(f.Pipeline, l.Source), Bytes: b}
}

// Whole brings back what a letter links, given the bytes of the object. It leaves a letter without a link as it is. The
// error is [ErrMalformed] if the object is not the one that was linked.
func Whole(l Letter, object []byte) (Letter, error) {
	if l.Link.Key == "" {
		return l, nil
	}
	if sum := sha256.Sum256(object); hex.EncodeToString(sum[:]) != strings.ToLower(l.Link.SHA256) {
		return Letter{}, malformed("the object that it links has another sha256")
	}
	line, value, found := bytes.Cut(object, []byte("\n"))
	var head objectHead
	if err := json.Unmarshal(line, &head); err != nil || !found {
		return Letter{}, malformed("the object that it links does not begin with a line of JSON")
	}
	switch {
	case head.ValueBytes == nil && len(value) == 0:
		value = nil
	case head.ValueBytes == nil, *head.ValueBytes != len(value):
		return Letter{}, malformed("the object that it links has another length than it says")
	}
	l.Value = value
	if l.Link.Record {
		l.Key, l.Headers = head.Key, nil
		for _, h := range head.Headers {
			l.Headers = append(l.Headers, Header{Key: string(h.Key), Value: h.Value})
		}
	}
	l.Link = Link{}
	return l, nil
}
