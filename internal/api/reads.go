package api

import (
	"context"
	"errors"
	"strconv"
	"time"

	"sluice/health"
	"sluice/internal/admin"
	"sluice/sink/delta/deltalog"
)

// access returns what package admin needs to reach Kafka, the store and the configuration, for one request. The caller
// closes it.
func (s *Server) access(readOnly bool) *admin.Access {
	return &admin.Access{Config: s.config, Version: s.Version, ReadOnly: readOnly, LetterBytes: letterBytes}
}

// flushes answers with what this member did about the newest request to flush each table.
func (s *Server) flushes(r *request) (answer, error) {
	page, next, err := pageOf(r, s.Flushes(), func(f admin.Flush) string { return f.Table })
	if err != nil {
		return answer{}, err
	}
	return jsonAnswer(struct {
		Member  string        `json:"member"`
		Flushes []admin.Flush `json:"flushes"`
		Next    string        `json:"next,omitempty"`
	}{s.Member, page, next})
}

// topic returns the parameter topic, which limits a list to one topic; "" if the list is to have all topics. It
// returns a problem if the configuration does not cover the topic.
func (s *Server) topic(r *request) (string, error) {
	topic := r.URL.Query().Get("topic")
	if topic == "" {
		return "", nil
	}
	if _, meant, _ := s.config.Route(topic); !meant {
		return "", newProblem(codeInvalid, "%v", admin.NoTopic(s.config, topic))
	}
	return topic, nil
}

func (s *Server) whoami(r *request) (answer, error) {
	return jsonAnswer(struct {
		Name     string     `json:"name"`
		Role     string     `json:"role"`
		Expires  *time.Time `json:"expires"`
		ReadOnly bool       `json:"read_only"`
	}{r.who.name, r.who.role.String(), expiry(r.who.expires), r.who.anonymous})
}

func (s *Server) status(*request) (answer, error) {
	report := s.Report()
	sum := report.Sum()
	return jsonAnswer(struct {
		Pipeline   string        `json:"pipeline"`
		Member     string        `json:"member"`
		Version    string        `json:"version"`
		Status     health.Status `json:"status"`
		Ready      bool          `json:"ready"`
		Reason     string        `json:"reason"`
		Draining   bool          `json:"draining"`
		Partitions int           `json:"partitions"`
		Holds      int           `json:"holds"`
		TotalLag   int64         `json:"total_lag"`
	}{
		s.config.Pipeline, s.Member, s.Version, sum.Status, sum.Ready, sum.Reason, report.Draining,
		len(report.Partitions), len(report.Holds), report.TotalLag(),
	})
}

// holdsPage is a page of holds.
type holdsPage struct {
	Holds   []*admin.Hold        `json:"holds"`
	Members []admin.MemberAnswer `json:"members"`
	Missed  []string             `json:"missed"`
	Next    string               `json:"next,omitempty"`
}

func (s *Server) holds(r *request) (answer, error) {
	topic, err := s.topic(r)
	if err != nil {
		return answer{}, err
	}
	a := s.access(true)
	defer a.Close()
	// Each dependency gets half of the time Within, so the holds that the other one shows are still found.
	found := admin.Holds(r.Context(), a, admin.HoldQuery{Topic: topic, Within: s.within * 2 / 3})
	page, next, err := pageOf(r, found.Holds, func(h *admin.Hold) string { return placeKey(h.Topic, h.Partition, string(h.Reason)) })
	if err != nil {
		return answer{}, err
	}
	missed := []string{}
	for _, err := range found.Missed {
		missed = append(missed, err.Error())
	}
	return jsonAnswer(holdsPage{page, found.Members, missed, next})
}

// positionsPage is a page of positions.
type positionsPage struct {
	Positions []admin.Position `json:"positions"`
	Next      string           `json:"next,omitempty"`
}

func (s *Server) positions(r *request) (answer, error) {
	topic, err := s.topic(r)
	if err != nil {
		return answer{}, err
	}
	a := s.access(true)
	defer a.Close()
	all, err := admin.Positions(r.Context(), a, topic)
	if err != nil {
		return answer{}, err
	}
	page, next, err := pageOf(r, all, func(p admin.Position) string { return placeKey(p.Topic, p.Partition, "") })
	if err != nil {
		return answer{}, err
	}
	return jsonAnswer(positionsPage{page, next})
}

// claim is a partition that this member works on.
type claim struct {
	Topic     string         `json:"topic"`
	Partition int32          `json:"partition"`
	Table     string         `json:"table"`
	Position  *int64         `json:"position"`
	End       *int64         `json:"end"`
	Lag       *int64         `json:"lag"`
	Verdict   health.Verdict `json:"verdict"`
	Freshness *float64       `json:"freshness_seconds"`
	Hold      *health.Held   `json:"hold"`
}

func (s *Server) partitions(r *request) (answer, error) {
	topic, err := s.topic(r)
	if err != nil {
		return answer{}, err
	}
	report := s.Report()
	held := map[string]*health.Held{}
	for _, h := range report.Holds {
		held[placeKey(h.Topic, h.Partition, "")] = new(h.Held())
	}
	all := []claim{}
	for _, p := range report.Partitions {
		if topic != "" && p.Topic != topic {
			continue
		}
		c := claim{Topic: p.Topic, Partition: p.ID, Table: p.Table, Verdict: p.Verdict, Freshness: p.Freshness, Hold: held[placeKey(p.Topic, p.ID, "")]}
		if p.Position >= 0 {
			c.Position = &p.Position
		}
		if p.End >= 0 {
			c.End = &p.End
		}
		if lag, known := p.Lag(); known {
			c.Lag = &lag
		}
		all = append(all, c)
	}
	page, next, err := pageOf(r, all, func(c claim) string { return placeKey(c.Topic, c.Partition, "") })
	if err != nil {
		return answer{}, err
	}
	return jsonAnswer(struct {
		Partitions []claim `json:"partitions"`
		Next       string  `json:"next,omitempty"`
	}{page, next})
}

// membersPage is a page of members. Findings are about all members.
type membersPage struct {
	health.Members
	Next string `json:"next,omitempty"`
}

func (s *Server) members(r *request) (answer, error) {
	if s.config.Members.Store == "none" {
		return answer{}, newProblem(codeUnconfigured, "members do not register: set members.store and members.url_file")
	}
	a := s.access(true)
	defer a.Close()
	found, err := admin.Members(r.Context(), a, "")
	if found == nil {
		return answer{}, err
	}
	page, next, err := pageOf(r, found.Members.Members, func(m health.Member) string { return m.ID })
	if err != nil {
		return answer{}, err
	}
	all := found.Members
	all.Members, all.Findings = page, orEmpty(all.Findings)
	return jsonAnswer(membersPage{all, next})
}

// table is a table of the pipeline.
type table struct {
	URL string `json:"url"`
	*admin.Inspection
	Missing bool   `json:"missing"` // it does not exist yet
	Error   string `json:"error,omitempty"`
}

func (s *Server) tables(r *request) (answer, error) {
	topic, err := s.topic(r)
	if err != nil {
		return answer{}, err
	}
	a := s.access(true)
	defer a.Close()
	all, end, err := admin.OpenTables(r.Context(), a, topic)
	if err != nil {
		return answer{}, err
	}
	defer end()
	page, next, err := pageOf(r, all, func(t *admin.Table) string { return t.URL })
	if err != nil {
		return answer{}, err
	}
	found := []table{}
	for _, t := range page {
		one, err := inspect(r.Context(), t)
		if err != nil {
			return answer{}, err
		}
		found = append(found, one)
	}
	return exactAnswer(struct {
		Tables []table `json:"tables"`
		Next   string  `json:"next,omitempty"`
	}{found, next})
}

// inspect describes a table. If the table cannot be read, the result has the error as text, so that the list still
// shows the others.
func inspect(ctx context.Context, t *admin.Table) (table, error) {
	i, err := admin.Inspect(ctx, t)
	switch {
	case errors.Is(err, deltalog.ErrNoTable):
		return table{URL: t.URL, Missing: true}, nil
	case ctx.Err() != nil:
		return table{}, ctx.Err()
	case err != nil:
		return table{URL: t.URL, Error: t.Failed(err).Error()}, nil
	}
	return table{URL: t.URL, Inspection: i}, nil
}

// auditPage is a page of the operations log.
type auditPage struct {
	Entries    []admin.RecordedEntry   `json:"entries"`
	Unreadable []admin.UnreadableEntry `json:"unreadable"`
	Next       string                  `json:"next,omitempty"`
}

func (s *Server) audit(r *request) (answer, error) {
	limit, err := r.limit()
	if err != nil {
		return answer{}, err
	}
	after, err := r.after()
	if err != nil {
		return answer{}, err
	}
	from := int64(1)
	if after != "" {
		if from, err = strconv.ParseInt(after, 10, 64); err != nil || from < 1 {
			return answer{}, noCursor()
		}
	}
	a := s.access(true)
	defer a.Close()
	report, seq, err := admin.AuditPage(r.Context(), a, from, limit)
	if err != nil {
		return answer{}, err
	}
	next := ""
	if seq > 0 {
		next = r.cursor(strconv.FormatInt(seq, 10))
	}
	return jsonAnswer(auditPage{report.Entries, orEmpty(report.Unreadable), next})
}
