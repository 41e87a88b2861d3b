package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/reliability/hold"
)

// Component is a part of a connector's health.
type Component struct {
	Name   string
	Status Status
	// Reason explains Status. It is "" only if Status is OK.
	Reason string
	// Details is a struct for JSON. Each component has its own fields: see docs/health.md.
	Details any
}

// Components returns the components of the report, always in the same order. It leaves out a component that is not
// configured.
func (r Report) Components() (all []Component) {
	for _, part := range []func(Report) (Component, bool){
		Report.kafkaPart, Report.storePart, Report.breakersPart, Report.holdsPart, Report.lagPart, Report.membersPart, Report.lettersPart,
		Report.fingerprintsPart, Report.memoryPart, Report.canaryPart, Report.operationsPart,
	} {
		if c, there := part(r); there {
			all = append(all, c)
		}
	}
	return all
}

// trouble is the status of a dependency, derived from its requests and from the holds that wait for it. reason is "" if
// the status is OK.
type trouble struct {
	status Status
	reason string
}

// trouble searches for failures of a dependency. The status is Degraded if any is found, and Down if all of the
// dependency's breakers are open or a hold of all topics waits for the dependency.
func (r Report) trouble(of hold.Dependency) trouble {
	t := trouble{status: OK}
	breakers, open := 0, 0
	for _, d := range r.Dependencies {
		if d.Name != string(of) && !strings.HasPrefix(d.Name, string(of)+" ") {
			continue
		}
		if d.guarded() {
			breakers++
		}
		if d.Open {
			open++
		}
		if (d.Open || d.Failing != nil) && t.status == OK {
			t.status, t.reason = Degraded, d.text()
		}
	}
	for _, h := range r.Holds {
		if hold.Reason(h.Reason).Dependency() != of {
			continue
		}
		if t.status == OK {
			t.status, t.reason = Degraded, h.Reason+": "+h.Detail
		}
		if h.Topic == "" {
			t.status, t.reason = Down, h.Reason+": "+h.Detail
		}
	}
	if breakers > 0 && open == breakers {
		t.status = Down
	}
	return t
}

// guarded reports whether the dependency has a circuit breaker. A single broker, such as "kafka broker 1", has none.
func (d Dependency) guarded() bool { return !strings.Contains(d.Name, " ") }

func (d Dependency) text() string {
	name := d.Name
	if d.Table != "" {
		name += " of table " + d.Table
	}
	switch {
	case d.Error != "":
		return name + ": " + d.Error
	case d.Open:
		return name + ": the circuit breaker is open"
	}
	return name + " fails"
}

func (r Report) kafkaPart() (Component, bool) {
	t := r.trouble(hold.Kafka)
	c := Component{Name: "kafka", Status: t.status, Reason: t.reason, Details: struct {
		Group   string   `json:"group"`
		Joined  bool     `json:"joined"`
		Brokers []string `json:"brokers"`
	}{r.Group, r.Joined, list(r.Brokers)}}
	switch {
	case r.Joined || r.Draining:
	case t.status != OK:
		c.Status = Down
	case r.Started:
		c.Status, c.Reason = Degraded, ErrNotJoined.Error()
	default:
		c.Status, c.Reason = Starting, ErrNotJoined.Error()
	}
	return c, true
}

func (r Report) storePart() (Component, bool) {
	t := r.trouble(hold.Store)
	c := Component{Name: "store", Status: t.status, Reason: t.reason, Details: struct {
		Tested bool `json:"tested"`
	}{r.Tested}}
	if !r.Tested && t.status == OK {
		c.Status, c.Reason = Starting, "the self-test has not ended yet"
	}
	return c, true
}

func (r Report) breakersPart() (Component, bool) {
	c := Component{Name: "breakers", Status: OK}
	open, all := 0, 0
	for _, d := range r.Dependencies {
		if d.guarded() {
			all++
		}
		if d.Open {
			open++
			if c.Reason == "" {
				c.Reason = "open: " + d.text()
			}
		}
	}
	if open > 0 {
		c.Status = Degraded
	}
	c.Details = struct {
		Open int `json:"open"`
		All  int `json:"all"`
	}{open, all}
	return c, true
}

func (r Report) holdsPart() (Component, bool) {
	type partition struct {
		topic string
		id    int32
	}
	held, everything := map[partition]bool{}, false
	byReason := map[string]int{}
	for _, h := range r.Holds {
		if h.Partition >= 0 {
			held[partition{h.Topic, h.Partition}] = true
		}
		everything = everything || h.Topic == ""
		byReason[h.Reason]++
	}
	c := Component{Name: "holds", Status: OK, Details: struct {
		Held       int            `json:"held"` // number of partitions of this member that are held
		Partitions int            `json:"partitions"`
		ByReason   map[string]int `json:"by_reason"`
	}{len(held), len(r.Partitions), byReason}}
	if len(r.Holds) == 0 {
		return c, true
	}
	c.Status = Degraded
	switch {
	case everything:
		c.Status, c.Reason = Down, "everything is held"
	case len(r.Partitions) > 0 && len(held) >= len(r.Partitions):
		c.Status = Down
		fallthrough
	case len(held) > 0:
		c.Reason = fmt.Sprintf("%d of %d partitions held", len(held), len(r.Partitions))
	default:
		c.Reason = "topic " + r.Holds[0].Topic + " is not read"
	}
	c.Reason += ": " + strings.Join(slices.Sorted(maps.Keys(byReason)), ", ")
	return c, true
}

// lagging is a partition that the component lag lists: its verdict is a problem, or it lags in a topic whose level is
// not ok.
type lagging struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Lag       *int64   `json:"lag"`
	Adjusted  *int64   `json:"adjusted_lag"`
	Verdict   Verdict  `json:"verdict,omitempty"`
	Level     Level    `json:"level,omitempty"`
	Freshness *float64 `json:"freshness_seconds"`
}

func (r Report) lagPart() (Component, bool) {
	if r.Lag == nil {
		return Component{}, false
	}
	c := Component{Name: "lag", Status: OK}
	conspicuous := []lagging{}
	for _, p := range r.Partitions {
		level, verdict := p.Level == LevelWarning || p.Level == LevelCritical, p.Verdict != "" && p.Verdict != VerdictOK && p.Verdict != VerdictHeld
		if level && c.Status == OK {
			c.Status, c.Reason = Degraded, fmt.Sprintf("topic %s: the lag is %s", p.Topic, p.Level)
		}
		current := p.Adjusted != nil && *p.Adjusted == 0 // if the level of the topic is not ok, other partitions cause that
		if !verdict && (!level || current) {
			continue
		}
		l := lagging{Topic: p.Topic, Partition: p.ID, Adjusted: p.Adjusted, Verdict: p.Verdict, Level: p.Level, Freshness: p.Freshness}
		if lag, known := p.Lag(); known {
			l.Lag = &lag
		}
		conspicuous = append(conspicuous, l)
	}
	switch {
	case !r.Lag.Healthy:
		c.Status, c.Reason = Down, r.Lag.Reason
	case r.Lag.Error != "" && c.Status == OK:
		c.Status, c.Reason = Unknown, r.Lag.Error
	case r.Lag.LastCheckTime.IsZero() && c.Status == OK:
		c.Status, c.Reason = Starting, "not looked at yet"
	}
	c.Details = struct {
		Healthy       bool             `json:"healthy"`
		TotalLag      int64            `json:"total_lag"`
		PartitionLags map[string]int64 `json:"partition_lags"`
		LastCheckTime *time.Time       `json:"last_check_time"`
		Error         string           `json:"error,omitempty"`
		Conspicuous   []lagging        `json:"conspicuous"` // the partitions with a verdict other than OK and HELD, and those that lag in a topic whose level is not ok
	}{r.Lag.Healthy, r.TotalLag(), r.Lag.lags(), r.Lag.checked(), r.Lag.Error, conspicuous}
	return c, true
}

// lags returns the lag of each partition, an empty map before the first check.
func (l *LagStatus) lags() map[string]int64 {
	if l == nil || l.PartitionLags == nil {
		return map[string]int64{}
	}
	return l.PartitionLags
}

// checked returns the time of the last check of the lag, nil before the first one.
func (l *LagStatus) checked() *time.Time {
	if l == nil || l.LastCheckTime.IsZero() {
		return nil
	}
	return &l.LastCheckTime
}

func (r Report) membersPart() (Component, bool) {
	if r.Members == nil {
		return Component{}, false
	}
	c := Component{Name: "members", Status: Status(r.Members.Status), Reason: r.Members.Reason, Details: struct {
		Members  []Member        `json:"members"`
		Findings []MemberFinding `json:"findings"`
	}{list(r.Members.Members), list(r.Members.Findings)}}
	switch r.Members.Status {
	case MembersOK, MembersDegraded, MembersUnknown:
	default: // true for a store that was not polled yet
		c.Status = Starting
	}
	return c, true
}

func (r Report) lettersPart() (Component, bool) {
	t := r.trouble(hold.DeadLetters)
	if r.Letters == nil && t.status == OK {
		return Component{}, false
	}
	l := Letters{}
	if r.Letters != nil {
		l = *r.Letters
	}
	unresolved := int64(0)
	for _, u := range l.Unresolved {
		unresolved += u.Count
	}
	c := Component{Name: "letters", Status: t.status, Reason: t.reason, Details: struct {
		Letters
		Total int64 `json:"unresolved_total"`
	}{l, unresolved}}
	switch {
	case t.status != OK:
	case unresolved > 0:
		c.Status, c.Reason = Degraded, fmt.Sprintf("unresolved dead letters: %d; see connector deadletters list", unresolved)
	case l.PerMinute > 0:
		c.Status, c.Reason = Degraded, "dead letters were written in the last minutes; see connector deadletters list"
	case l.Error != "":
		c.Status, c.Reason = Unknown, l.Error
	case l.Unresolved == nil:
		c.Status, c.Reason = Starting, "not counted yet"
	}
	return c, true
}

func (r Report) fingerprintsPart() (Component, bool) {
	t := r.trouble(hold.Fingerprints)
	store := "memory"
	for _, d := range r.Dependencies {
		if d.Name == "postgres" {
			store = "postgres"
		}
	}
	if len(r.Fingerprints) == 0 && store == "memory" && t.status == OK {
		return Component{}, false
	}
	return Component{Name: "fingerprints", Status: t.status, Reason: t.reason, Details: struct {
		Store  string         `json:"store"`
		Topics []Fingerprints `json:"topics"`
	}{store, list(r.Fingerprints)}}, true
}

func (r Report) memoryPart() (Component, bool) {
	c := Component{Name: "memory", Status: OK, Details: struct {
		Pools  []Pool `json:"pools"`
		Queued int64  `json:"queued"`
		Paused bool   `json:"paused"`
	}{list(r.Memory), r.Queued, r.Paused}}
	for _, p := range r.Memory {
		if p.Size > 0 && p.Used >= p.Size && c.Status == OK {
			c.Status, c.Reason = Degraded, fmt.Sprintf("the pool %s is full: who needs more of it waits", p.Name)
		}
	}
	return c, true
}

func (r Report) canaryPart() (Component, bool) {
	if r.Canary == nil {
		return Component{}, false
	}
	c := Component{Name: "canary", Status: OK, Details: *r.Canary}
	switch {
	case r.Canary.Failing != nil:
		c.Status, c.Reason = Degraded, "a canary failed: "+r.Canary.Stage
		if r.Canary.Error != "" {
			c.Reason += ": " + r.Canary.Error
		}
	case r.Canary.Seen == nil:
		c.Status, c.Reason = Starting, "the first canary is on its way"
	}
	return c, true
}

func (r Report) operationsPart() (Component, bool) {
	if r.Operations == nil {
		return Component{}, false
	}
	t := r.trouble(hold.Operations)
	c := Component{Name: "operations_log", Status: t.status, Reason: t.reason, Details: *r.Operations}
	switch {
	case r.Operations.Known && c.Status == Down:
		c.Status = Degraded // the last known state of the operations log stays in force
	case r.Operations.Known:
	case c.Status != OK:
		c.Status = Down
	default:
		c.Status, c.Reason = Starting, "not read yet"
	}
	return c, true
}

// list returns all, or an empty list for nil: in JSON it is then [], not null.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
