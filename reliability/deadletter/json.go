package deadletter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sluice/classify"
	"sluice/idempotency"
)

// document is the JSON form of a dead letter, version 1.0, as Sluice writes it. Bytes that are not UTF-8 are written in
// base64, and the _encoding field beside them says so.
type document struct {
	Topic         string           `json:"original_topic"`
	Partition     string           `json:"original_partition"`
	Offset        int64            `json:"original_offset"`
	Key           *string          `json:"original_key"`
	KeyEncoding   string           `json:"original_key_encoding,omitempty"`
	Value         *string          `json:"original_value"`
	ValueEncoding string           `json:"original_value_encoding,omitempty"`
	ValueLink     *documentLink    `json:"original_value_link,omitempty"`
	Timestamp     *string          `json:"original_timestamp"`
	TimestampMs   int64            `json:"original_timestamp_ms"`
	Headers       []documentHeader `json:"original_headers"`

	ErrorReason     string          `json:"error_reason"`
	ErrorMessage    string          `json:"error_message"`
	ErrorClass      string          `json:"error_class"`
	ErrorStackTrace string          `json:"error_stack_trace"`
	ErrorDetails    documentDetails `json:"error_details"`

	DLQTimestamp   *string `json:"dlq_timestamp"`
	DLQVersion     string  `json:"dlq_version"`
	RetryCount     int     `json:"retry_count"`
	WorkerInstance string  `json:"worker_instance"`
	FirstFailureAt *string `json:"first_failure_at"`
	LastFailureAt  *string `json:"last_failure_at"`

	Class         string `json:"class"`
	Reason        string `json:"reason"`
	Cluster       string `json:"cluster"`
	TopicID       string `json:"topic_id"`
	CorrelationID string `json:"correlation_id"`
	BatchID       string `json:"batch_id"`
}

type documentDetails struct {
	ExceptionClass string `json:"exception_class"`
	Message        string `json:"message"`
	StackTrace     string `json:"stack_trace"`
}

type documentLink struct {
	Key    string `json:"key"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Holds  string `json:"holds"`
}

type documentHeader struct {
	Key           string  `json:"key"`
	KeyEncoding   string  `json:"key_encoding,omitempty"`
	Value         *string `json:"value"`
	ValueEncoding string  `json:"value_encoding,omitempty"`
}

const (
	encodingBase64 = "base64"
	nonRetriable   = "NonRetriableException"
	retriable      = "RetriableException"
)

// JSON returns the dead letter as JSON, version 1.0. It cuts texts as [Form.Encode] does.
func (l *Letter) JSON() []byte {
	detail, trace := truncate(l.Detail, maxDetail), truncate(l.Trace, maxTrace)
	d := document{
		Topic: l.Source.Topic, Partition: strconv.Itoa(int(l.Source.ID)), Offset: l.Source.Offset,
		Timestamp: timestampText(l.Timestamp), TimestampMs: l.Timestamp, Headers: []documentHeader{},
		ErrorReason: strings.ReplaceAll(string(l.Reason), "_", " "), ErrorMessage: detail, ErrorClass: nonRetriable, ErrorStackTrace: trace,
		ErrorDetails: documentDetails{l.exception(), detail, trace},
		DLQTimestamp: optional(formatMillis(writtenAt(l.Written, l.LastFailure))), DLQVersion: Version,
		RetryCount: l.Retries, WorkerInstance: l.Member,
		FirstFailureAt: optional(formatTime(l.FirstFailure)), LastFailureAt: optional(formatTime(l.LastFailure)),
		Class: l.Class.String(), Reason: string(l.Reason), Cluster: l.Source.Cluster, TopicID: l.Source.TopicID.String(),
		CorrelationID: l.Correlation, BatchID: l.Batch,
	}
	if l.Class == classify.Transient {
		d.ErrorClass = retriable
	}
	d.Key, d.KeyEncoding = toJSON(l.Key)
	d.Value, d.ValueEncoding = toJSON(l.Value)
	if k := l.Link; k.Key != "" {
		d.ValueLink = &documentLink{k.Key, k.Bytes, k.SHA256, k.holds()}
	}
	for _, h := range l.Headers {
		var j documentHeader
		key, encoding := toJSON([]byte(h.Key))
		if key != nil {
			j.Key, j.KeyEncoding = *key, encoding
		}
		j.Value, j.ValueEncoding = toJSON(h.Value)
		d.Headers = append(d.Headers, j)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(d); err != nil { // cannot happen: the document has only texts and numbers
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// toJSON returns bytes as a JSON string and the encoding of that string: "" for UTF-8, otherwise base64. nil becomes
// null.
func toJSON(b []byte) (s *string, encoding string) {
	if b == nil {
		return nil, ""
	}
	t := string(b)
	if !utf8.Valid(b) {
		t, encoding = base64.StdEncoding.EncodeToString(b), encodingBase64
	}
	return &t, encoding
}

// optional returns nil for "".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// timestampText formats the timestamp of a record for operators. It returns nil if RFC 3339 cannot express the time.
func timestampText(ms int64) *string {
	t := time.UnixMilli(ms).UTC()
	if y := t.Year(); y < 0 || y > 9999 || t.UnixMilli() != ms {
		return nil
	}
	return optional(t.Format("2006-01-02T15:04:05.000Z07:00"))
}

// received is the JSON form of a dead letter that is read. Sluice or another program wrote it, so a field may have one
// of several types.
type received struct {
	Topic         string          `json:"original_topic"`
	Partition     json.RawMessage `json:"original_partition"` // a number, or a string that has a number
	Offset        json.RawMessage `json:"original_offset"`
	Key           json.RawMessage `json:"original_key"` // a string, or any other JSON, which then is the key itself
	KeyEncoding   string          `json:"original_key_encoding"`
	Value         json.RawMessage `json:"original_value"`
	ValueEncoding string          `json:"original_value_encoding"`
	ValueLink     *documentLink   `json:"original_value_link"`
	Timestamp     json.RawMessage `json:"original_timestamp"`
	TimestampMs   *int64          `json:"original_timestamp_ms"`
	Headers       []struct {
		Key           string          `json:"key"`
		KeyEncoding   string          `json:"key_encoding"`
		Value         json.RawMessage `json:"value"`
		ValueEncoding string          `json:"value_encoding"`
	} `json:"original_headers"`

	ErrorReason     string          `json:"error_reason"`
	ErrorMessage    string          `json:"error_message"`
	ErrorClass      string          `json:"error_class"`
	ErrorStackTrace string          `json:"error_stack_trace"`
	ErrorDetails    documentDetails `json:"error_details"`

	DLQTimestamp   string          `json:"dlq_timestamp"`
	DLQVersion     string          `json:"dlq_version"`
	RetryCount     json.RawMessage `json:"retry_count"`
	WorkerInstance string          `json:"worker_instance"`
	FirstFailureAt string          `json:"first_failure_at"`
	LastFailureAt  string          `json:"last_failure_at"`

	Class         string `json:"class"`
	Reason        string `json:"reason"`
	Cluster       string `json:"cluster"`
	TopicID       string `json:"topic_id"`
	CorrelationID string `json:"correlation_id"`
	BatchID       string `json:"batch_id"`
}

// parseJSON returns the dead letter in a record's value. The error is [ErrMalformed].
func parseJSON(r Record) (Letter, error) {
	switch {
	case !bytes.HasPrefix(bytes.TrimLeft(r.Value, " \t\r\n"), []byte("{")):
		return Letter{}, malformed("the record has neither the headers of a dead letter nor a JSON object as value")
	case !utf8.Valid(r.Value):
		return Letter{}, malformed("the value is not UTF-8")
	}
	var d received
	if err := json.Unmarshal(r.Value, &d); err != nil {
		return Letter{}, malformed("the value is not the JSON of a dead letter") // err is left out of the text, because it may quote the value
	}
	if v := d.DLQVersion; v != "" && v != "1" && !strings.HasPrefix(v, "1.") {
		return Letter{}, malformed("dlq_version is not 1.x")
	}
	b := fields{}
	l := Letter{
		Key: b.bytes("original_key", d.Key, d.KeyEncoding), Value: b.bytes("original_value", d.Value, d.ValueEncoding),
		Timestamp: b.timestamp(d.TimestampMs, d.Timestamp, r.Timestamp),
		Source: idempotency.Coordinates{
			Partition: idempotency.Partition{
				Cluster: d.Cluster, Topic: d.Topic, TopicID: b.topicID(d.TopicID),
				ID: int32(b.number("original_partition", d.Partition, math.MaxInt32)), //nolint:gosec // bounded
			},
			Offset: b.number("original_offset", d.Offset, math.MaxInt64),
		},
		FirstFailure: b.time("first_failure_at", d.FirstFailureAt), LastFailure: b.time("last_failure_at", d.LastFailureAt),
		Member: d.WorkerInstance, Correlation: d.CorrelationID, Batch: d.BatchID,
	}
	written := b.time("dlq_timestamp", d.DLQTimestamp)
	if l.LastFailure.IsZero() && d.Reason == "" { // another program wrote the dead letter, and it has no other time
		l.LastFailure = written
	}
	l.Written = writtenAt(written, l.LastFailure)
	if len(d.RetryCount) > 0 {
		l.Retries = int(b.number("retry_count", d.RetryCount, math.MaxInt32))
	}
	for _, h := range d.Headers {
		key := []byte(h.Key)
		if h.KeyEncoding != "" {
			key = b.decode("a header's key", h.Key, h.KeyEncoding)
		}
		l.Headers = append(l.Headers, Header{Key: string(key), Value: b.bytes("a header", h.Value, h.ValueEncoding)})
	}
	if k := d.ValueLink; k != nil {
		l.Link = Link{Key: k.Key, Bytes: k.Bytes, SHA256: k.SHA256, Record: k.Holds == (Link{Record: true}).holds()}
	}
	d.cause(&l, &b)
	if b.err != nil {
		return Letter{}, b.err
	}
	return l, l.check()
}

// cause sets the class, reason, detail and trace of l. Documents of other programs may lack some of the fields and use
// other texts.
func (d *received) cause(l *Letter, b *fields) {
	l.Trace = d.ErrorStackTrace
	if l.Trace == "" {
		l.Trace = d.ErrorDetails.StackTrace
	}
	l.Trace = truncate(l.Trace, maxTrace)
	if d.Reason != "" {
		l.Reason, l.Detail = Reason(d.Reason), truncate(d.ErrorMessage, maxDetail)
	} else {
		l.Reason = Unspecified
		said := slices.DeleteFunc([]string{d.ErrorReason, d.ErrorMessage}, func(s string) bool { return s == "" })
		if len(said) == 0 {
			said = slices.DeleteFunc([]string{d.ErrorDetails.ExceptionClass, d.ErrorDetails.Message}, func(s string) bool { return s == "" })
		}
		l.Detail = truncate(strings.Join(said, ": "), maxDetail)
	}
	switch class, ok := classNamed(d.Class); {
	case ok:
		l.Class = class
	case d.Class != "":
		b.fail(malformed("class is not the name of a class"))
	case d.ErrorClass == retriable:
		l.Class = classify.Transient
	default:
		l.Class = classify.Poison
	}
}

// fields reads fields of a document that may have several forms. It keeps the first error.
type fields struct{ err error }

// fail records err if it is the first error.
func (b *fields) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// bytes returns the content of a field: the bytes of a string, nil for null, otherwise the JSON itself.
func (b *fields) bytes(name string, raw json.RawMessage, encoding string) []byte {
	switch {
	case len(raw) == 0, string(raw) == "null":
		return nil
	case raw[0] != '"':
		return raw
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		b.fail(malformed("%s is not a string", name))
	}
	return b.decode(name, s, encoding)
}

// decode returns the bytes of a string in the given encoding: "" for UTF-8, or base64.
func (b *fields) decode(name, s, encoding string) []byte {
	switch encoding {
	case "":
		return []byte(s)
	case encodingBase64:
		v, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			b.fail(malformed("%s is not base64", name))
		}
		return v
	}
	b.fail(malformed("the encoding of %s is not base64", name))
	return nil
}

func (b *fields) number(name string, raw json.RawMessage, most int64) int64 {
	n, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	if err != nil || n < 0 || n > most {
		b.fail(malformed("%s is not a number from 0 to %d", name, most))
		return 0
	}
	return n
}

func (b *fields) topicID(s string) idempotency.TopicID {
	if s == "" {
		return idempotency.TopicID{}
	}
	id, err := idempotency.ParseTopicID(s)
	if err != nil {
		b.fail(malformed("topic_id is not the id of a topic"))
	}
	return id
}

func (b *fields) time(name, s string) time.Time {
	t, err := parseTime(s)
	if err != nil {
		b.fail(malformed("%s is not a time", name))
	}
	return t
}

// timestamp returns the record's timestamp in milliseconds: from ms, else from raw (an RFC 3339 text or milliseconds),
// else the timestamp of the dead letter.
func (b *fields) timestamp(ms *int64, raw json.RawMessage, letter int64) int64 {
	switch {
	case ms != nil:
		return *ms
	case len(raw) == 0, string(raw) == "null":
		return letter
	case raw[0] != '"':
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			b.fail(malformed("original_timestamp is not a time"))
		}
		return n
	}
	return b.time("original_timestamp", strings.Trim(string(raw), `"`)).UnixMilli()
}
