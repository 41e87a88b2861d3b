package app

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
)

// letterDescs describes the metrics of a [letterWatch].
type letterDescs struct{ unresolved, topic, counted, replayed *prometheus.Desc }

func newLetterDescs() letterDescs {
	return letterDescs{
		unresolved: prometheus.NewDesc("sluice_unresolved_dead_letters",
			"Unresolved dead letters, as deadletters list counts them: their records have no row, and no member will read them again, and no operator discarded or acknowledged them. The number is that of the whole pipeline: every member reports the same.",
			[]string{"topic", "class"}, nil),
		topic: prometheus.NewDesc("sluice_topic_info", "1 for each topic whose bad records become dead letters; letters_class is dead_letters.class.",
			[]string{"topic", "letters_class"}, nil),
		replayed: prometheus.NewDesc("worker_dlq_replayed_total",
			"Dead letters whose records became rows by a replay, by the topic of the record. The number is that of the operations log: every member reports the same.",
			[]string{"topic"}, nil),
		counted: prometheus.NewDesc("sluice_unresolved_dead_letters_timestamp_seconds", "When the dead letters of all topics were last counted without an error.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (w *letterWatch) Describe(descs chan<- *prometheus.Desc) {
	descs <- w.descs.unresolved
	descs <- w.descs.topic
	descs <- w.descs.counted
	descs <- w.descs.replayed
}

// Collect implements prometheus.Collector. A topic has no series until it was counted once.
func (w *letterWatch) Collect(metrics chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for topic, counts := range w.counted {
		shown := make(map[classify.Class]int64)
		shown[classify.Poison] = 0 // the default class has a series once the topic was counted
		maps.Copy(shown, counts)
		for class, n := range shown {
			metrics <- prometheus.MustNewConstMetric(w.descs.unresolved, prometheus.GaugeValue, float64(n), topic, class.String())
		}
	}
	for topic, class := range w.classes {
		metrics <- prometheus.MustNewConstMetric(w.descs.topic, prometheus.GaugeValue, 1, topic, class)
	}
	// A member that does not know the number yet exports none: a 0 would look like a reset of the counter.
	if state := w.decisions(); state != nil {
		replayed := state.Replayed()
		for topic := range w.classes {
			replayed[topic] += 0 // a topic has a series once it was counted
		}
		for topic, n := range replayed {
			metrics <- prometheus.MustNewConstMetric(w.descs.replayed, prometheus.CounterValue, float64(n), topic)
		}
	}
	if !w.at.IsZero() {
		metrics <- prometheus.MustNewConstMetric(w.descs.counted, prometheus.GaugeValue, float64(w.at.UnixMilli())/1000)
	}
}
