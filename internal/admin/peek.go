package admin

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/internal/fail"
	"sluice/reliability/hold"
	"sluice/sink/opslog"
)

// PeekedRecord is a record of a topic. Its bytes are text if they are UTF-8; otherwise they are in base64, and the
// encoding is "base64".
type PeekedRecord struct {
	Topic         string         `json:"topic"`
	Partition     int32          `json:"partition"`
	Offset        int64          `json:"offset"`
	Timestamp     time.Time      `json:"timestamp"`
	Key           *string        `json:"key"`
	KeyEncoding   string         `json:"key_encoding,omitempty"`
	Value         *string        `json:"value"`
	ValueEncoding string         `json:"value_encoding,omitempty"`
	Headers       []PeekedHeader `json:"headers"`
	// Problem says why the record cannot become a row; "" if it can.
	Problem string `json:"problem"`
	Bytes   []byte `json:"-"` // the value
}

// PeekedHeader is a header of a [PeekedRecord].
type PeekedHeader struct {
	Key           string  `json:"key"`
	Value         *string `json:"value"`
	ValueEncoding string  `json:"value_encoding,omitempty"`
}

// shownBytes returns bytes as text, and the encoding of the text, which is "" for UTF-8. For nil it returns nil.
func shownBytes(b []byte) (text *string, encoding string) {
	switch {
	case b == nil:
		return nil, ""
	case utf8.Valid(b):
		return new(string(b)), ""
	}
	return new(base64.StdEncoding.EncodeToString(b)), "base64"
}

// Peek returns the record at an offset of a partition. Its Problem says why the record cannot become a row, "" if it
// can. The error has the kind [fail.KindFound] if there is no such record, or if a member would be held there because
// it cannot read the record.
func Peek(ctx context.Context, a *Access, place opslog.Target, offset int64) (*PeekedRecord, error) {
	cfg := a.Config
	if _, meant, _ := cfg.Route(place.Topic); !meant {
		return nil, fail.Usage(NoTopic(cfg, place.Topic))
	}
	tables, end, err := openAll(ctx, cfg, []string{place.Topic})
	if err != nil {
		return nil, err
	}
	defer end()
	snapshot, _, err := tables[0].snapshot(ctx)
	if err != nil {
		return nil, err
	}
	queries, err := newKafkaQueries(ctx, cfg)
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer queries.close()
	l, err := queries.inspect(ctx, tables[0], place.Topic, snapshot)
	if held, ok := errors.AsType[*hold.Error](err); ok {
		return nil, fail.Found(held)
	}
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	r, err := queries.recordOf(l, place.Partition, offset)
	if err != nil {
		return nil, err
	}
	shown := &PeekedRecord{
		Topic: place.Topic, Partition: place.Partition, Offset: r.Offset, Timestamp: time.UnixMilli(r.Timestamp).UTC(), Headers: []PeekedHeader{},
		Bytes: r.Value,
	}
	shown.Key, shown.KeyEncoding = shownBytes(r.Key)
	shown.Value, shown.ValueEncoding = shownBytes(r.Value)
	for _, h := range r.Headers {
		text, encoding := shownBytes(h.Value)
		shown.Headers = append(shown.Headers, PeekedHeader{h.Key, text, encoding})
	}
	p, _ := l.partition(place.Partition)
	if err := l.becomesRow(p, r); err != nil {
		shown.Problem = err.Error()
	}
	return shown, nil
}

// recordOf returns the committed record at an offset. It returns an error of [fail.KindFound] if there is none.
func (q *kafkaQueries) recordOf(l *inspection, id int32, offset int64) (*connector.Record, error) {
	p, ok := l.partition(id)
	if !ok {
		return nil, fail.Found(fmt.Errorf("topic %s has no partition %d", l.topic.Name, id))
	}
	var b kafka.Batch
	err := q.retry(func(ctx context.Context) (err error) { b, err = q.log.BatchAt(ctx, p, offset); return err })
	if err == nil {
		err = b.Unreadable
	}
	if held, ok := errors.AsType[*hold.Error](err); ok {
		return nil, fail.Found(held)
	}
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	if b.Record == nil || b.Record.Offset != offset {
		return nil, fail.Found(fmt.Errorf("there is no committed record at %v@%d: it is a transaction marker, part of an aborted transaction, or compacted away", p, offset))
	}
	return b.Record, nil
}
