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

// BatchOverhead is the size of an empty record batch in bytes (Kafka's format, magic 2).
const BatchOverhead = 61

// Size returns the largest size of the record in a record batch, in bytes; its timestamp and offset may be encoded
// shorter. A topic's max.message.bytes limits the whole batch: compare it with BatchOverhead + Size.
func (r *Record) Size() int {
	n := 1 + 10 + 5 // attributes, timestamp delta and offset delta of a record
	n += sized(len(r.Key)) + sized(len(r.Value)) + varint(len(r.Headers))
	for _, h := range r.Headers {
		n += sized(len(h.Key)) + sized(len(h.Value))
	}
	return sized(n)
}

// sized returns the size of n bytes plus that of their length prefix.
func sized(n int) int { return varint(n) + n }

// varint returns the size of a length in zigzag encoding.
func varint(n int) int {
	size := 1
	for z := uint64(n) << 1; z >= 0x80; z >>= 7 { //nolint:gosec // a length is never negative
		size++
	}
	return size
}

// Object is an object for the store that a dead letter links. It must be stored before the dead letter is written. It
// holds the whole record: one line of JSON with the key and the headers in base64 and the length of the value, then a
// line feed, then the bytes of the value:
//
//	{"version":"1.0","key":"aw==","headers":[{"key":"aA==","value":null}],"value_bytes":5}
//	value
//
// A null value has a value_bytes of null. The same record always gives the same object under the same key.
type Object struct {
	Key   string // key of the object in the store, from [LinkKey]
	Bytes []byte // content of the object
}

// objectHead is the first line of an object. encoding/json writes bytes in base64, and nil as null.
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

// LinkKey returns the key of the object that holds the record with these coordinates:
// _sluice/<pipeline>/letters/<cluster>/<topic>/<topic id>/<partition>/<offset>.
func LinkKey(pipeline string, c idempotency.Coordinates) string {
	return "_sluice/" + escape(pipeline) + linkPath(c)
}

// linkPath returns the part of a link's key after the pipeline.
func linkPath(c idempotency.Coordinates) string {
	return strings.Join([]string{
		"/letters", escape(c.Cluster), escape(c.Topic), c.TopicID.String(), strconv.Itoa(int(c.ID)), strconv.FormatInt(c.Offset, 10),
	}, "/")
}

// escape makes s a single segment of a key. An empty s becomes "-".
func escape(s string) string {
	switch s {
	case "":
		return "-"
	case "-", ".", "..": // "-" already means an empty s, and "." and ".." mean folders
		return strings.ReplaceAll(strings.ReplaceAll(s, "-", "%2D"), ".", "%2E")
	}
	return url.QueryEscape(s)
}

// of reports whether a link can belong to the record with these coordinates, under any pipeline name. Readers fetch the
// object that a link names, so a hostile dead letter must not name the object of another record.
func (k Link) of(c idempotency.Coordinates) bool {
	pipeline, ok := strings.CutPrefix(k.Key, "_sluice/")
	pipeline, path := strings.TrimSuffix(pipeline, linkPath(c)), strings.HasSuffix(pipeline, linkPath(c))
	sum, err := hex.DecodeString(k.SHA256)
	return ok && path && pipeline != "" && pipeline != "." && pipeline != ".." && !strings.ContainsAny(pipeline, "/\\\x00") &&
		k.Bytes > 0 && err == nil && len(sum) == sha256.Size
}

// ErrNoRoom means that the topic's limit is too small even for a dead letter that only links its record.
var ErrNoRoom = errors.New("no room for a dead letter")

// Fit encodes a dead letter so that its record batch has at most limit bytes. To make room, it first cuts the trace,
// then the detail. Then it moves the value into an object that the dead letter links, and restores as much of both
// texts as fits. Last, it moves the key and the headers into the object, too. The record itself is never cut. The
// object is nil if none is needed; otherwise the caller stores it first. The error is [ErrNoRoom] if all of this is not
// enough.
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
		return Record{}, nil, fmt.Errorf("%w: a record batch may have at most %d bytes, the dead letter needs %d", ErrNoRoom, limit, BatchOverhead+r.Size())
	}
	return r, o, nil
}

// shrink encodes a dead letter with as much of its texts as fits, in a few steps. It reports whether the record fits
// into room bytes.
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

// object returns the object that holds the record of a dead letter.
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
	if err != nil { // cannot happen: the head has only bytes and numbers
		panic(err)
	}
	b := make([]byte, 0, len(line)+1+len(l.Value))
	b = append(append(append(b, line...), '\n'), l.Value...)
	return &Object{Key: LinkKey(f.Pipeline, l.Source), Bytes: b}
}

// Whole returns the dead letter with the parts that it lacks, taken from the content of the object that it links. A
// dead letter without a link is returned as it is. The error is [ErrMalformed] if object is not the content of that
// object.
func Whole(l Letter, object []byte) (Letter, error) {
	if l.Link.Key == "" {
		return l, nil
	}
	if sum := sha256.Sum256(object); hex.EncodeToString(sum[:]) != strings.ToLower(l.Link.SHA256) {
		return Letter{}, malformed("the linked object has another sha256")
	}
	line, value, found := bytes.Cut(object, []byte("\n"))
	var head objectHead
	if err := json.Unmarshal(line, &head); err != nil || !found {
		return Letter{}, malformed("the linked object does not begin with a line of JSON")
	}
	switch {
	case head.ValueBytes == nil && len(value) == 0:
		value = nil
	case head.ValueBytes == nil, *head.ValueBytes != len(value):
		return Letter{}, malformed("the linked object has another length than its first line says")
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
