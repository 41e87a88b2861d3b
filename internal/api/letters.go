package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sluice/internal/admin"
	"sluice/sink/opslog"
)

// letterBytes bounds the memory of one request for dead letters: the member needs its memory for records.
const letterBytes = 64 << 20

func (s *Server) deadLetters(r *request) (answer, error) {
	q := admin.LetterQuery{Topic: r.URL.Query().Get("topic"), Reason: r.URL.Query().Get("code"), Within: s.within, Paged: true}
	var err error
	if q.Limit, err = r.limit(); err != nil {
		return answer{}, err
	}
	if q.After, err = r.afterLetter(); err != nil {
		return answer{}, err
	}
	if q.Since, err = admin.ParseSince(r.URL.Query().Get("since"), s.now()); err != nil {
		return answer{}, newProblem(codeInvalid, "since: %v", err)
	}
	if q.States, err = admin.ParseLetterStates(r.URL.Query().Get("state")); err != nil {
		return answer{}, newProblem(codeInvalid, "state: %v", err)
	}
	a := s.access(true)
	defer a.Close()
	list, err := admin.DeadLetters(r.Context(), a, q)
	if errors.Is(err, admin.ErrNoLetters) {
		return answer{}, newProblem(codeUnconfigured, "%v", err)
	}
	if err != nil {
		return answer{}, err
	}
	for i := range list.Listed {
		if l := &list.Listed[i]; l.OfOthers() {
			l.Detail = "" // it may quote the record
		}
	}
	next := ""
	if list.Next != nil {
		next = r.cursor(letterCursor(*list.Next))
	}
	return jsonAnswer(lettersPage{list, next})
}

// lettersPage is a page of dead letters. Its counts are about all pages.
type lettersPage struct {
	*admin.LetterList
	Next string `json:"next,omitempty"`
}

// letterCursor returns a key as the text of a cursor. The name of a topic has no slash.
func letterCursor(k admin.LetterKey) string {
	return fmt.Sprintf("%s/%d/%d/%s", k.Topic, k.Partition, k.Offset, k.Rest)
}

// afterLetter returns the key behind which a page of dead letters begins, zero for the first page.
func (r *request) afterLetter() (admin.LetterKey, error) {
	text, err := r.after()
	if text == "" || err != nil {
		return admin.LetterKey{}, err
	}
	const parts = 4 // those of letterCursor
	part := strings.Split(text, "/")
	if len(part) != parts {
		return admin.LetterKey{}, noCursor()
	}
	partition, err1 := strconv.ParseInt(part[1], 10, 32)
	offset, err2 := strconv.ParseInt(part[2], 10, 64)
	if err1 != nil || err2 != nil {
		return admin.LetterKey{}, noCursor()
	}
	return admin.LetterKey{Topic: part[0], Partition: int32(partition), Offset: offset, Rest: part[3]}, nil
}

// deadLetter answers with a dead letter and its contents. The log has a line of each such read.
func (s *Server) deadLetter(r *request) (answer, error) {
	partition, err := parsePartition(r.PathValue("partition"))
	if err != nil {
		return answer{}, err
	}
	offset, err := parseOffset(r.PathValue("offset"))
	if err != nil {
		return answer{}, err
	}
	a := s.access(true)
	defer a.Close()
	letter, notes, err := admin.DeadLetter(r.Context(), a, admin.LetterSearch{
		Topic: r.PathValue("topic"), Partition: partition, Offset: offset, TopicID: r.URL.Query().Get("topic_id"), Within: s.within,
	})
	if err != nil {
		return answer{}, err
	}
	s.Logger.InfoContext(r.Context(), "dead letter read", "operator", r.who.name, "topic", letter.Source.Topic,
		"topic_id", letter.Source.TopicID.String(), "partition", letter.Source.ID, "offset", letter.Source.Offset)
	return exactAnswer(ShownLetter{letter.JSON(), orEmpty(notes)})
}

// ShownLetter is a dead letter with its contents.
type ShownLetter struct {
	Letter json.RawMessage `json:"dead_letter"`
	Notes  []string        `json:"notes"`
}

func parsePartition(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, newProblem(codeInvalid, "the partition is not a whole number from 0")
	}
	return int32(n), nil
}

func parseOffset(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, newProblem(codeInvalid, "the offset is not a whole number from 0")
	}
	return n, nil
}

func (s *Server) discard(r *request) (answer, error)     { return s.deciding(r, admin.PlanDiscard) }
func (s *Server) acknowledge(r *request) (answer, error) { return s.deciding(r, admin.PlanAcknowledge) }
func (s *Server) reopen(r *request) (answer, error)      { return s.deciding(r, admin.PlanReopen) }

// Letters are the fields that select dead letters in the body of a request. Since and Until are texts such as 24h.
type Letters struct {
	Records []string `json:"records"`
	Topic   string   `json:"topic"`
	TopicID string   `json:"topic_id"`
	Code    string   `json:"code"`
	Since   string   `json:"since"`
	Until   string   `json:"until"`
	States  []string `json:"states"`
}

// lettersBody is the body of a decision about dead letters.
type lettersBody struct {
	common
	Letters
}

// deciding plans and records a decision about dead letters.
func (s *Server) deciding(r *request, of func(context.Context, *admin.Access, admin.LetterSelection) (*admin.Decision, error)) (answer, error) {
	var body lettersBody
	if err := r.decode(&body); err != nil {
		return answer{}, err
	}
	q, err := body.selection(s)
	if err != nil {
		return answer{}, err
	}
	return s.decision(r, body.common, body, func(ctx context.Context, a *admin.Access) (*admin.Decision, error) { return of(ctx, a, q) })
}

// selection returns the dead letters that the fields select.
func (b Letters) selection(s *Server) (q admin.LetterSelection, err error) {
	switch {
	case (len(b.Records) > 0) == (b.Topic != ""):
		return q, newProblem(codeInvalid, `name records, such as ["orders:3@1207"], or a topic`)
	case len(b.Records) > 0 && (b.Code != "" || b.Since != "" || b.Until != "" || b.States != nil):
		return q, newProblem(codeInvalid, "records are named one by one: leave out code, since, until and states")
	case b.Topic != "" && b.TopicID != "":
		return q, newProblem(codeInvalid, "topic_id belongs to records: leave it out")
	}
	if q, err = b.filtered(s); err != nil {
		return q, err
	}
	for _, text := range b.Records {
		place, err := parseRecord(text)
		if err != nil {
			return q, err
		}
		place.TopicID = b.TopicID
		q.Records = append(q.Records, place)
	}
	return q, nil
}

// filtered returns the dead letters that the fields other than records select.
func (b Letters) filtered(s *Server) (q admin.LetterSelection, err error) {
	q.Topic, q.Reason, q.Within = b.Topic, b.Code, s.within
	if q.Since, err = admin.ParseSince(b.Since, s.now()); err != nil {
		return q, newProblem(codeInvalid, "since: %v", err)
	}
	if q.Until, err = admin.ParseSince(b.Until, s.now()); err != nil {
		return q, newProblem(codeInvalid, "until: %v", err)
	}
	if q.States, err = admin.ParseLetterStates(strings.Join(b.States, ",")); err != nil {
		return q, newProblem(codeInvalid, "states: %v", err)
	}
	return q, nil
}

// parseRecord parses TOPIC:PARTITION@OFFSET.
func parseRecord(text string) (admin.RecordPlace, error) {
	place, number, _ := strings.Cut(text, "@")
	t, err := opslog.ParseTarget(place)
	offset, bad := parseOffset(number)
	if err != nil || bad != nil || t.Partition < 0 {
		return admin.RecordPlace{}, newProblem(codeInvalid, "%q is not a record: write TOPIC:PARTITION@OFFSET, such as orders:3@1207", text)
	}
	return admin.RecordPlace{Topic: t.Topic, Partition: t.Partition, Offset: offset}, nil
}

// candidate is a dead letter that an ambiguous request may mean.
type candidate struct {
	Letter string `json:"letter"`
	Record string `json:"record"`
}

// discardAt discards the dead letter with an offset in a dead-letter topic.
func (s *Server) discardAt(r *request) (answer, error) {
	query := r.URL.Query()
	body := struct {
		common
		admin.LetterPlace
	}{common{Reason: query.Get("reason")}, admin.LetterPlace{Topic: r.PathValue("topic"), Partition: -1}}
	var err error
	if body.Offset, err = parseOffset(r.PathValue("offset")); err != nil {
		return answer{}, err
	}
	if text := query.Get("partition"); text != "" {
		if body.Partition, err = parsePartition(text); err != nil {
			return answer{}, err
		}
	}
	if body.DryRun, err = r.dryRun(); err != nil {
		return answer{}, err
	}
	return s.decision(r, body.common, body, func(ctx context.Context, a *admin.Access) (*admin.Decision, error) {
		found, err := letterAt(ctx, a, admin.LetterSearch{Topic: body.Topic, Partition: body.Partition, Offset: body.Offset, Within: s.within})
		if err != nil {
			return nil, err
		}
		return admin.PlanDiscard(ctx, a, s.letterOf(found.Record))
	})
}

// letterOf selects the dead letter of one record.
func (s *Server) letterOf(p admin.RecordPlace) admin.LetterSelection {
	return admin.LetterSelection{Records: []admin.RecordPlace{p}, LetterQuery: admin.LetterQuery{Within: s.within}}
}

// letterAt returns the dead letter at a place of a dead-letter topic. Its error is a problem if several partitions have one.
func letterAt(ctx context.Context, a *admin.Access, o admin.LetterSearch) (admin.LetterAt, error) {
	found, err := admin.LettersAt(ctx, a, o)
	switch {
	case err != nil:
		return admin.LetterAt{}, err
	case len(found) > 1:
		return admin.LetterAt{}, ambiguous(found)
	}
	return found[0], nil
}

// ambiguous is the problem of an offset that several partitions have.
func ambiguous(found []admin.LetterAt) *problem {
	p := newProblem(codeAmbiguous, "%d partitions have a dead letter at this offset: name the partition", len(found))
	for _, l := range found {
		p.Candidates = append(p.Candidates, candidate{l.Letter.String(), l.Record.String()})
	}
	return p
}
