package ops

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"sluice/reliability"
)

// meters answers /actuator/metrics from the metrics that /metrics shows.
type meters struct {
	server    *Server
	metrics   prometheus.Gatherer
	gathering chan struct{} // has one place for each request that may gather metrics at the same time
	failing   reliability.FailureLog
}

// gather returns all metrics. If too many requests gather already, it answers with an error and returns false. The
// metrics of a collector that fails are left out, as in /metrics.
func (m *meters) gather(w http.ResponseWriter, r *http.Request) ([]*dto.MetricFamily, bool) {
	select {
	case m.gathering <- struct{}{}:
		defer func() { <-m.gathering }()
	default:
		m.server.fail(w, r, http.StatusServiceUnavailable, fmt.Sprintf("%d others ask for metrics just now: try again", scrapes))
		return nil, false
	}
	families, err := m.metrics.Gather()
	if err != nil {
		m.failing.Failed(r.Context(), m.server.logger, slog.LevelWarn, "metrics are not complete", "err", err)
	} else {
		m.failing.Over(r.Context(), m.server.logger, "metrics are complete again")
	}
	return families, true
}

func (m *meters) serveNames(w http.ResponseWriter, r *http.Request) {
	families, ok := m.gather(w, r)
	if !ok {
		return
	}
	names := []string{}
	for _, f := range families {
		names = append(names, meterName(f.GetName()))
	}
	slices.Sort(names)
	m.server.write(w, r, http.StatusOK, struct {
		Names []string `json:"names"`
	}{slices.Compact(names)})
}

// meter is a metric in the actuator's shape.
type meter struct {
	Name          string         `json:"name"`
	Description   string         `json:"description,omitempty"`
	BaseUnit      string         `json:"baseUnit,omitempty"`
	Measurements  []measurement  `json:"measurements"`
	AvailableTags []availableTag `json:"availableTags"`
}

type measurement struct {
	Statistic string `json:"statistic"`
	Value     number `json:"value"`
}

type availableTag struct {
	Tag    string   `json:"tag"`
	Values []string `json:"values"`
}

// number is a float that JSON may not be able to express: NaN and infinities are written as texts, as the actuator
// does.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	switch f := float64(n); {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return json.Marshal(f)
	}
}

// tag is a label and its value in a request, which selects the series with that value.
type tag struct{ key, value string }

func tags(r *http.Request) (all []tag, err error) {
	for _, text := range r.URL.Query()["tag"] {
		for one := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(one, ":")
			if !ok || key == "" {
				return nil, fmt.Errorf("a tag has the form key:value")
			}
			all = append(all, tag{key, value})
		}
	}
	return all, nil
}

func (m *meters) serveMeter(w http.ResponseWriter, r *http.Request) {
	filter, err := tags(r)
	if err != nil {
		m.server.fail(w, r, http.StatusBadRequest, err.Error())
		return
	}
	families, ok := m.gather(w, r)
	if !ok {
		return
	}
	name := r.PathValue("name")
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return named(f.GetName(), name) })
	if i < 0 {
		m.server.fail(w, r, http.StatusNotFound, "no such metric: /actuator/metrics has all names")
		return
	}
	a, found := meterOf(families[i], filter)
	if !found {
		m.server.fail(w, r, http.StatusNotFound, "the metric has no series with these tags")
		return
	}
	m.server.write(w, r, http.StatusOK, a)
}

// meterOf returns a metric in the shape of the actuator, which sums up all series that have the tags, those of gauges
// too. It returns false if no series has them.
func meterOf(f *dto.MetricFamily, filter []tag) (meter, bool) {
	a := meter{Name: meterName(f.GetName()), Description: f.GetHelp(), BaseUnit: baseUnit(f.GetName()), AvailableTags: []availableTag{}}
	sums, values, found := map[string]float64{}, map[string]map[string]bool{}, false
	for _, series := range f.GetMetric() {
		if !has(series, filter) {
			continue
		}
		found = true
		for statistic, value := range statistics(f, series) {
			sums[statistic] += value
		}
		for _, l := range series.GetLabel() {
			if values[l.GetName()] == nil {
				values[l.GetName()] = map[string]bool{}
			}
			values[l.GetName()][l.GetValue()] = true
		}
	}
	for _, statistic := range []string{"COUNT", "TOTAL", "TOTAL_TIME", "VALUE"} {
		if value, ok := sums[statistic]; ok {
			a.Measurements = append(a.Measurements, measurement{statistic, number(value)})
		}
	}
	for _, t := range filter {
		delete(values, t.key)
	}
	for key, set := range values {
		t := availableTag{Tag: key, Values: []string{}}
		for value := range set {
			t.Values = append(t.Values, value)
		}
		slices.Sort(t.Values)
		a.AvailableTags = append(a.AvailableTags, t)
	}
	slices.SortFunc(a.AvailableTags, func(a, b availableTag) int { return strings.Compare(a.Tag, b.Tag) })
	return a, found
}

func has(series *dto.Metric, filter []tag) bool {
	for _, t := range filter {
		if !slices.ContainsFunc(series.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == t.key && l.GetValue() == t.value }) {
			return false
		}
	}
	return true
}

// statistics returns the actuator's statistics of a series.
func statistics(f *dto.MetricFamily, series *dto.Metric) map[string]float64 {
	total := "TOTAL"
	if baseUnit(f.GetName()) == "seconds" {
		total = "TOTAL_TIME"
	}
	switch {
	case series.Counter != nil:
		return map[string]float64{"COUNT": series.Counter.GetValue()}
	case series.Histogram != nil:
		return map[string]float64{"COUNT": float64(series.Histogram.GetSampleCount()), total: series.Histogram.GetSampleSum()}
	case series.Summary != nil:
		return map[string]float64{"COUNT": float64(series.Summary.GetSampleCount()), total: series.Summary.GetSampleSum()}
	case series.Gauge != nil:
		return map[string]float64{"VALUE": series.Gauge.GetValue()}
	}
	return map[string]float64{"VALUE": series.Untyped.GetValue()}
}
