package kafka

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"sluice/connector/kafka/recordbatch"
	"sluice/reliability/hold"
)

// logMetrics are the metrics of a [Log].
type logMetrics struct {
	requests, byName, responseBytes, records, recordBytes, throttled prometheus.Counter
	errors                                                           *prometheus.CounterVec
}

func newLogMetrics(reg prometheus.Registerer) *logMetrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &logMetrics{
		requests:      counter("sluice_fetch_requests_total", "Fetch requests that a broker answered."),
		byName:        counter("sluice_fetch_by_name_requests_total", "Fetch requests to a broker that is read by topic name because it is older than Kafka 3.1; they are in sluice_fetch_requests_total, too."),
		responseBytes: counter("sluice_fetch_response_bytes_total", "Bytes of the responses to fetch requests."),
		records:       counter("sluice_fetch_records_total", "Committed records read."),
		recordBytes:   counter("sluice_fetch_record_bytes_total", "Memory that records took when they were read, decompressed, in bytes."),
		throttled:     counter("sluice_fetch_throttled_seconds_total", "Time for which brokers asked for no further fetch request."),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_fetch_errors_total",
			Help: "Errors met while reading from Kafka, by kind. They are retried, or lead to a hold.",
		}, []string{"kind"}),
	}
	reg.MustRegister(m.errors)
	return m
}

func (m *logMetrics) fetched(bytes int, throttle time.Duration) {
	m.requests.Inc()
	m.responseBytes.Add(float64(bytes))
	m.throttled.Add(throttle.Seconds())
}

func (m *logMetrics) delivered(records, bytes int) {
	m.records.Add(float64(records))
	m.recordBytes.Add(float64(bytes))
}

func (m *logMetrics) failed(err error) { m.errors.WithLabelValues(kindOf(err)).Inc() }

// kindOf returns the metric label for an error, one of a few kinds.
func kindOf(err error) string {
	var (
		code kafka.Error
		h    *hold.Error
		op   *net.OpError
	)
	switch {
	case errors.As(err, &h):
		return string(h.Reason)
	case errors.As(err, &code):
		return kindOfCode(code)
	case errors.Is(err, errVersion):
		return "version"
	case errors.Is(err, errOldMetadata):
		return "leader"
	case errors.Is(err, recordbatch.ErrNoRoom), errors.Is(err, recordbatch.ErrNeverRoom):
		return "memory"
	case errors.Is(err, errMalformed), errors.Is(err, errResponseSize):
		return "response"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.As(err, &op), Classify(err) != nil:
		return "connection"
	}
	return "other"
}

func kindOfCode(code kafka.Error) string {
	switch code { //nolint:exhaustive // the rest is "other"
	case kafka.NotLeaderForPartition, kafka.LeaderNotAvailable, kafka.ReplicaNotAvailable, kafka.FencedLeaderEpoch,
		kafka.UnknownLeaderEpoch, kafka.OffsetNotAvailable, kafka.BrokerNotAvailable:
		return "leader"
	case kafka.UnknownTopicOrPartition, kafka.UnknownTopicID, kafka.InconsistentTopicID:
		return "topic"
	case kafka.OffsetOutOfRange:
		return "offset"
	case kafka.InvalidMessage:
		return "corrupt_batch"
	case kafka.RequestTimedOut:
		return "timeout"
	}
	if denied(code) {
		return "denied"
	}
	return "other"
}
