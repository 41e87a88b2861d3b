package deadletter

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/classify"
	"sluice/idempotency"
)

// Version is the version of the format of dead letters, in headers and in JSON. [Parse] accepts every 1.x.
const Version = "1.0"

// Record is the Kafka record that carries a dead letter. Key and Value are nil if they are null.
type Record struct {
	Timestamp int64 // milliseconds since 1970
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Envelope says where a record carries the facts about a dead letter.
type Envelope string

// The envelopes.
const (
	// EnvelopeHeaders means that the dead letter is in headers after the record's own; key, value and headers of the record stay unchanged.
	EnvelopeHeaders Envelope = "headers"
	EnvelopeJSON    Envelope = "json" // the dead letter is in the value, which is [Letter.JSON]; the key stays unchanged
)

// Form says how the dead letters of one pipeline are encoded.
type Form struct {
	Pipeline string
	Envelope Envelope // "" means EnvelopeHeaders
}

// ErrMalformed means that a record carries no dead letter, or a damaged one. Its class is Poison.
var ErrMalformed = errors.New("not a dead letter")

// The headers of a dead letter. The names of Kafka Connect come from KIP-298, those that begin with _dlq. from
// KIP-1317; the others are Sluice's own. versionHeader comes first. The headers before the last versionHeader belong to
// the record. If the record was a dead letter itself, they include the headers of that one.
const (
	versionHeader   = "sluice.version"
	envelopeHeader  = "sluice.envelope" // its value is "json"; without this header it is EnvelopeHeaders
	clusterHeader   = "sluice.cluster"
	topicHeader     = "sluice.topic"
	topicIDHeader   = "sluice.topic_id"
	partitionHeader = "sluice.partition"
	offsetHeader    = "sluice.offset"
	// Timestamp of the record in milliseconds: the dead-letter topic may set its own timestamps.
	timestampHeader    = "sluice.timestamp"
	classHeader        = "sluice.class"
	reasonHeader       = "sluice.reason"
	retriesHeader      = "sluice.retries"
	firstFailureHeader = "sluice.first_failure"
	lastFailureHeader  = "sluice.last_failure"
	writtenHeader      = "sluice.written"
	memberHeader       = "sluice.member"
	correlationHeader  = "sluice.correlation"
	batchHeader        = "sluice.batch"
	linkHeader         = "sluice.link"
	linkBytesHeader    = "sluice.link.bytes"
	linkSHA256Header   = "sluice.link.sha256"
	linkHoldsHeader    = "sluice.link.holds" // "value", or "record" if the object has the key and the headers, too

	connectPrefix    = "__connect.errors."
	messageHeader    = connectPrefix + "exception.message"
	stacktraceHeader = connectPrefix + "exception.stacktrace"

	kipPrefix = "_dlq.errors."
)

// Maximum lengths of texts, in characters.
const (
	maxDetail = 1000
	maxTrace  = 500
)

// Encode returns the record that carries a dead letter. It cuts Detail to 1000 characters and Trace to 500.
func (f Form) Encode(l Letter) Record {
	l.Detail, l.Trace = truncate(l.Detail, maxDetail), truncate(l.Trace, maxTrace)
	if f.Envelope == EnvelopeJSON {
		return Record{
			Timestamp: l.Timestamp, Key: l.Key, Value: l.JSON(),
			Headers: []Header{text(versionHeader, Version), text(envelopeHeader, string(EnvelopeJSON))},
		}
	}
	return Record{Timestamp: l.Timestamp, Key: l.Key, Value: l.Value, Headers: append(slices.Clone(l.Headers), f.context(l)...)}
}

// context returns the headers with the facts about the dead letter, which follow the record's own.
func (f Form) context(l Letter) []Header {
	partition, offset := strconv.Itoa(int(l.Source.ID)), strconv.FormatInt(l.Source.Offset, 10)
	all := []Header{
		text(versionHeader, Version),
		text(clusterHeader, l.Source.Cluster),
		text(topicHeader, l.Source.Topic),
		text(topicIDHeader, l.Source.TopicID.String()),
		text(partitionHeader, partition),
		text(offsetHeader, offset),
		text(timestampHeader, strconv.FormatInt(l.Timestamp, 10)),
		text(classHeader, l.Class.String()),
		text(reasonHeader, string(l.Reason)),
		text(retriesHeader, strconv.Itoa(l.Retries)),
	}
	for _, h := range []Header{
		text(firstFailureHeader, formatTime(l.FirstFailure)),
		text(lastFailureHeader, formatTime(l.LastFailure)),
		text(writtenHeader, formatMillis(l.Written)),
		text(memberHeader, l.Member),
		text(correlationHeader, l.Correlation),
		text(batchHeader, l.Batch),
	} {
		if len(h.Value) > 0 {
			all = append(all, h)
		}
	}
	if l.Link.Key != "" {
		all = append(all,
			text(linkHeader, l.Link.Key), text(linkBytesHeader, strconv.FormatInt(l.Link.Bytes, 10)),
			text(linkSHA256Header, l.Link.SHA256), text(linkHoldsHeader, l.Link.holds()))
	}
	return append(all,
		text(connectPrefix+"topic", l.Source.Topic),
		text(connectPrefix+"partition", partition),
		text(connectPrefix+"offset", offset),
		text(connectPrefix+"connector.name", f.Pipeline),
		text(connectPrefix+"task.id", l.Member),
		text(connectPrefix+"stage", l.stage()),
		text(connectPrefix+"class.name", "sluice"),
		text(connectPrefix+"exception.class.name", l.exception()),
		text(messageHeader, l.Detail),
		text(stacktraceHeader, l.Trace),
		text(kipPrefix+"disposition", l.disposition()),
		text(kipPrefix+"original.topic", l.Source.Topic),
		text(kipPrefix+"original.partition", partition),
		text(kipPrefix+"original.offset", offset),
	)
}

// stage maps the reason to a constant of Kafka Connect's enum Stage, which says where a record failed.
func (l *Letter) stage() string {
	switch l.Reason {
	case NullKey:
		return "KEY_CONVERTER"
	case Isolated, BadPartition:
		return "TASK_PUT"
	case RetriesExhausted:
		return "TRANSFORMATION"
	default:
		return "VALUE_CONVERTER"
	}
}

// exception returns the text that stands where Kafka Connect has the name of a Java exception class, because tools
// group errors by it.
func (l *Letter) exception() string { return "sluice." + l.Class.String() + "." + string(l.Reason) }

// disposition maps the reason to one of the two values that KIP-1317 defines.
func (l *Letter) disposition() string {
	if l.Reason == RetriesExhausted {
		return "MAX_DELIVERY_ATTEMPTS_REACHED"
	}
	return "CLIENT_REJECTED"
}

// holds returns the value of linkHoldsHeader, which says what the dead letter lacks: "record" for key, value and
// headers, "value" for the value alone.
func (k Link) holds() string {
	if k.Record {
		return "record"
	}
	return "value"
}

// Parse returns the dead letter that a record carries, in either envelope. It undoes Encode. A JSON value without
// Sluice's headers may come from another program. The result shares the memory of the record. The error is
// [ErrMalformed], and its text contains no bytes of the record.
func Parse(r Record) (Letter, error) {
	i := len(r.Headers) - 1
	for i >= 0 && r.Headers[i].Key != versionHeader {
		i--
	}
	if i < 0 {
		return parseJSON(r)
	}
	if v := string(r.Headers[i].Value); v != "1" && !strings.HasPrefix(v, "1.") {
		return Letter{}, malformed("header %s is not 1.x", versionHeader)
	}
	block := block{headers: r.Headers[i+1:]}
	if block.text(envelopeHeader) == string(EnvelopeJSON) {
		return parseJSON(r)
	}
	l := Letter{Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	if i > 0 {
		l.Headers = r.Headers[:i:i]
	}
	l.Source = idempotency.Coordinates{
		Partition: idempotency.Partition{
			Cluster: block.text(clusterHeader), Topic: block.text(topicHeader), TopicID: block.topicID(),
			ID: int32(block.number(partitionHeader, math.MaxInt32)), //nolint:gosec // bounded
		},
		Offset: block.number(offsetHeader, math.MaxInt64),
	}
	if block.has(timestampHeader) {
		ms, err := strconv.ParseInt(block.text(timestampHeader), 10, 64)
		if err != nil {
			return Letter{}, malformed("header %s is not a number of milliseconds", timestampHeader)
		}
		l.Timestamp = ms
	}
	l.Class, l.Reason = block.class(), Reason(block.text(reasonHeader))
	if block.has(retriesHeader) {
		l.Retries = int(block.number(retriesHeader, math.MaxInt32))
	}
	l.FirstFailure, l.LastFailure = block.time(firstFailureHeader), block.time(lastFailureHeader)
	l.Written = writtenAt(block.time(writtenHeader), l.LastFailure)
	l.Member, l.Correlation, l.Batch = block.text(memberHeader), block.text(correlationHeader), block.text(batchHeader)
	l.Detail, l.Trace = block.text(messageHeader), block.text(stacktraceHeader)
	if block.has(linkHeader) {
		l.Link = Link{
			Key: block.text(linkHeader), Bytes: block.number(linkBytesHeader, math.MaxInt64), SHA256: block.text(linkSHA256Header),
			Record: block.text(linkHoldsHeader) == (Link{Record: true}).holds(),
		}
	}
	if block.err != nil {
		return Letter{}, block.err
	}
	return l, l.check()
}

// check returns an error if a field has a value that no dead letter can have.
func (l *Letter) check() error {
	switch {
	case !validTopic(l.Source.Topic):
		return malformed("Kafka does not allow the name of the original topic")
	case l.Source.ID < 0 || l.Source.Offset < 0:
		return malformed("the partition or the offset is negative")
	case !isCode(string(l.Reason)):
		return malformed("the reason is not a code of lower-case letters, digits and _")
	case l.Link.Key != "" && !l.Link.of(l.Source):
		return malformed("the link does not belong to these coordinates")
	}
	return nil
}

// isCode reports whether s may be a [Reason]. A Reason becomes the value of a column and of a label.
func isCode(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// malformed returns an [ErrMalformed]. The arguments must not contain bytes of the record.
func malformed(format string, args ...any) error {
	return classify.Mark(fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...)), classify.Poison)
}

// block reads the headers of a dead letter that follow those of the record. err is the first fault. If a header
// repeats, the first one counts, because a program that forwards a dead letter may append headers.
type block struct {
	headers []Header
	err     error
}

func (b *block) has(name string) bool {
	return slices.ContainsFunc(b.headers, func(h Header) bool { return h.Key == name })
}

func (b *block) text(name string) string {
	for _, h := range b.headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// fail records err if it is the first error.
func (b *block) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *block) number(name string, most int64) int64 {
	n, err := strconv.ParseInt(b.text(name), 10, 64)
	if err != nil || n < 0 || n > most {
		b.fail(malformed("header %s is not a number from 0 to %d", name, most))
		return 0
	}
	return n
}

func (b *block) topicID() idempotency.TopicID {
	s := b.text(topicIDHeader)
	if s == "" {
		return idempotency.TopicID{}
	}
	id, err := idempotency.ParseTopicID(s)
	if err != nil {
		b.fail(malformed("header %s is not the id of a topic", topicIDHeader))
	}
	return id
}

func (b *block) class() classify.Class {
	c, ok := classNamed(b.text(classHeader))
	if !ok {
		b.fail(malformed("header %s is not a class", classHeader))
	}
	return c
}

func (b *block) time(name string) time.Time {
	t, err := parseTime(b.text(name))
	if err != nil {
		b.fail(malformed("header %s is not a time", name))
	}
	return t
}

// classNamed returns the class with the given name. Its second result is false if there is none.
func classNamed(name string) (classify.Class, bool) {
	for c := classify.Transient; c <= classify.Canceled; c++ {
		if c.String() == name {
			return c, true
		}
	}
	return classify.Transient, false
}

func text(name, value string) Header { return Header{Key: name, Value: []byte(value)} }

// formatTime formats a time as RFC 3339 in UTC. The zero time becomes "".
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// writtenAt returns when a dead letter was written, to the millisecond. If the dead letter does not say that, as those
// of earlier versions, it returns the time of the last failure, which is close to it.
func writtenAt(written, lastFailure time.Time) time.Time {
	if written = written.Truncate(time.Millisecond); written.IsZero() {
		return lastFailure.Truncate(time.Millisecond)
	}
	return written
}

// formatMillis formats a time like formatTime, but always with three digits of milliseconds, so that a dead letter that
// is written again has the same size.
func formatMillis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// parseTime parses a time in RFC 3339. A time without a zone is in UTC, and "" is the zero time.
func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t, err = time.Parse("2006-01-02T15:04:05.999999999", s)
	}
	return t.UTC(), err
}

// truncate returns the first n characters of s, with U+FFFD for bytes that are not UTF-8.
func truncate(s string, n int) string {
	if len(s) > n {
		at := 0
		for i := range s {
			if at++; at > n {
				s = s[:i]
				break
			}
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
