package api

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"time"

	"sluice/internal/admin"
	"sluice/sink/opslog"
)

// These bounds keep the jobs that a member remembers small. A job keeps only the first shownRecords records of its
// request. A request whose code or topic_id has more than longestText bytes is refused.
const (
	shownRecords = 10
	longestText  = 1000
)

// replaySelection says which dead letters a replay takes, and how.
type replaySelection struct {
	Records []string `json:"records,omitempty"` // at most shownRecords of them in a job
	Count   int      `json:"record_count,omitempty"`
	Topic   string   `json:"topic,omitempty"`
	TopicID string   `json:"topic_id,omitempty"`
	// Partition and Offset together with Topic name one dead letter. If Topic is a dead-letter topic, they are the place
	// of the dead letter in it, and Partition may be nil; otherwise they are the place of its record in Topic. Both are
	// nil if the replay selects in another way.
	Partition *int32   `json:"partition,omitempty"`
	Offset    *int64   `json:"offset,omitempty"`
	Code      string   `json:"code,omitempty"`
	Since     string   `json:"since,omitempty"`
	Until     string   `json:"until,omitempty"`
	States    []string `json:"states,omitempty"`
	Rate      *float64 `json:"rate,omitempty"`
	Mode      string   `json:"mode,omitempty"`
	Edited    bool     `json:"edited,omitempty"` // with another value
}

// filter has the fields of the body that both kinds of replay requests accept beside the topic.
type filter struct {
	Code   string   `json:"code"`
	Since  string   `json:"since"`
	Until  string   `json:"until"`
	States []string `json:"states"`
	Rate   *float64 `json:"rate"`
	Mode   string   `json:"mode"`
}

// replayBody is the body of a request that replays the dead letters it names or selects.
type replayBody struct {
	common
	filter
	Records       []string `json:"records"`
	Topic         string   `json:"topic"`
	TopicID       string   `json:"topic_id"`
	Partition     *int32   `json:"partition"`
	Offset        *int64   `json:"offset"`
	Value         *string  `json:"value"`
	ValueEncoding string   `json:"value_encoding"`
}

// replayAllBody is the body of a request that replays the dead letters of a topic, which is in its query, or of all.
type replayAllBody struct {
	common
	filter
	All   bool   `json:"all"`
	Topic string `json:"-"`
}

// finding is a function that returns the dead letters to replay. It may read Kafka.
type finding func(ctx context.Context, a *admin.Access) (admin.LetterSelection, error)

// replay replays the dead letters that the body selects, as a job. It waits for the end of the job for at most two
// thirds of the time that a request may take; see startReplay.
func (s *Server) replay(r *request) (answer, error) {
	var body replayBody
	if err := r.decode(&body); err != nil {
		return answer{}, err
	}
	value, err := decodeValue(body.Value, body.ValueEncoding)
	if err != nil {
		return answer{}, err
	}
	selects := replaySelection{
		Records: body.Records, Topic: body.Topic, TopicID: body.TopicID, Partition: body.Partition, Offset: body.Offset,
		Code: body.Code, Since: body.Since, Until: body.Until, States: body.States, Rate: body.Rate, Mode: body.Mode, Edited: value != nil,
	}
	find, err := selects.finding(s)
	if err != nil {
		return answer{}, err
	}
	if single := body.Offset != nil || len(body.Records) == 1; value != nil && !single {
		return answer{}, newProblem(codeInvalid, "a value replaces that of one record: name one record")
	}
	return s.startReplay(r, body.common, body, selects, find, value, true)
}

// replayAll replays all dead letters of a topic, or of all topics, that the body selects, as a job.
func (s *Server) replayAll(r *request) (answer, error) {
	var body replayAllBody
	if err := r.decode(&body); err != nil {
		return answer{}, err
	}
	body.Topic = r.URL.Query().Get("topic")
	if body.All == (body.Topic != "") {
		return answer{}, newProblem(codeInvalid, `name a topic in the query, such as ?topic=orders-dlq, or send "all": true`)
	}
	if err := s.checkLetterTopic(body.Topic); err != nil {
		return answer{}, err
	}
	selects := replaySelection{Topic: body.Topic, Code: body.Code, Since: body.Since, Until: body.Until, States: body.States, Rate: body.Rate, Mode: body.Mode}
	q, err := Letters{Topic: body.Topic, Code: body.Code, Since: body.Since, Until: body.Until, States: body.States}.filtered(s)
	if err != nil {
		return answer{}, err
	}
	find := func(context.Context, *admin.Access) (admin.LetterSelection, error) { return q, nil }
	asked := struct {
		Topic string
		Body  any
	}{body.Topic, body}
	return s.startReplay(r, body.common, asked, selects, find, nil, false)
}

// checkLetterTopic returns an error if the configuration says that there are no dead letters of a topic, unless that is "".
func (s *Server) checkLetterTopic(topic string) error {
	if topic == "" {
		return nil
	}
	err := admin.CheckLetterTopic(s.config, topic)
	if errors.Is(err, admin.ErrNoTopic) {
		return newProblem(codeNotFound, "%v", err)
	}
	return err
}

// decodeValue returns the bytes of an edited value: text itself or, with the encoding base64, the bytes that it
// encodes. It returns nil if the request has neither a value nor an encoding, and a problem if they do not fit
// together.
func decodeValue(text *string, encoding string) ([]byte, error) {
	switch {
	case text == nil && encoding == "":
		return nil, nil
	case text == nil:
		return nil, newProblem(codeInvalid, "value_encoding belongs to value: leave it out, or send a value")
	case encoding == "":
		return []byte(*text), nil
	case encoding != "base64":
		return nil, newProblem(codeInvalid, `value_encoding is "base64", or left out for text`)
	}
	value, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		return nil, newProblem(codeInvalid, "value is not base64, as value_encoding says")
	}
	return value, nil
}

// finding returns the function that finds the dead letters which b selects. It returns a problem if the fields of b do
// not fit together.
func (b *replaySelection) finding(s *Server) (finding, error) {
	of := Letters{Records: b.Records, Topic: b.Topic, TopicID: b.TopicID, Code: b.Code, Since: b.Since, Until: b.Until, States: b.States}
	if b.Offset == nil && b.Partition == nil {
		q, err := of.selection(s)
		return func(context.Context, *admin.Access) (admin.LetterSelection, error) { return q, err }, err
	}
	switch {
	case b.Offset == nil || b.Topic == "" || len(b.Records) > 0 || b.Code != "" || b.Since != "" || b.Until != "" || b.States != nil:
		return nil, newProblem(codeInvalid, "topic, partition and offset name one dead letter: send these three and no other selection")
	case *b.Offset < 0 || b.Partition != nil && *b.Partition < 0:
		return nil, newProblem(codeInvalid, "partition and offset are whole numbers from 0")
	}
	one := admin.LetterSearch{Topic: b.Topic, Partition: -1, Offset: *b.Offset, TopicID: b.TopicID, Within: s.within}
	if b.Partition != nil {
		one.Partition = *b.Partition
	}
	if len(s.config.Sources(b.Topic)) > 0 {
		return func(ctx context.Context, a *admin.Access) (admin.LetterSelection, error) {
			found, err := letterAt(ctx, a, one)
			return s.letterOf(found.Record), err
		}, nil
	}
	if b.Partition == nil {
		return nil, newProblem(codeInvalid, "partition is missing: only an offset of a dead-letter topic may stand without it")
	}
	return func(context.Context, *admin.Access) (admin.LetterSelection, error) {
		return s.letterOf(admin.RecordPlace{Topic: one.Topic, TopicID: one.TopicID, Partition: one.Partition, Offset: one.Offset}), nil
	}, nil
}

// startReplay starts the job of a replay, and answers with the job. If wait is true, it first waits for the end of the
// job, for at most two thirds of the time that a request may take; if the job fails in that time without an effect, it
// returns the error of the job.
//
// If an earlier request had the same Idempotency-Key, startReplay starts no job. It answers with the job of that
// request or, if this member does not know that job, with the entry that it wrote to the operations log.
func (s *Server) startReplay(r *request, c common, body any, selects replaySelection, find finding, value []byte, wait bool) (answer, error) {
	by, err := r.by(c)
	if err != nil {
		return answer{}, err
	}
	q := admin.ReplayQuery{Value: value, Rate: admin.DefaultReplayRate}
	if selects.Rate != nil {
		q.Rate = *selects.Rate
	}
	if selects.Mode != "" {
		var ok bool
		if q.Mode, ok = admin.ParseReplayMode(selects.Mode); !ok {
			return answer{}, newProblem(codeInvalid, "mode is direct or topic")
		}
	}
	if q.Rate < 0 {
		return answer{}, newProblem(codeInvalid, "rate is a number of dead letters per second, or 0 for no limit")
	}
	if len(selects.Code) > longestText || len(selects.TopicID) > longestText {
		return answer{}, newProblem(codeInvalid, "code and topic_id have at most %d bytes", longestText)
	}
	once, err := r.once(body)
	if err != nil {
		return answer{}, err
	}
	if e, err := s.performedElsewhere(r.Context(), once); e != nil || err != nil {
		a, bad := jsonAnswer(Started{DryRun: c.DryRun, Entry: e})
		a.header = map[string]string{"Idempotent-Replayed": "true"}
		return a, errors.Join(err, bad)
	}
	selects.Count = len(selects.Records)
	selects.Records = slices.Clone(selects.Records[:min(len(selects.Records), shownRecords)])
	view := Job{DryRun: c.DryRun, Member: s.Member, Operator: by.Operator, Reason: by.Reason, Selects: selects, Started: s.now().UTC()}
	j, repeated, err := s.jobs.start(r.Context(), view, once, func(ctx context.Context, j *job) error {
		by.Once = once
		return s.runReplay(ctx, j, find, q, by)
	})
	if err != nil {
		return answer{}, err
	}
	if wait && !repeated {
		s.await(r.Context(), j)
	}
	v := s.jobs.view(j)
	if wait && v.State == jobFailed && v.Operation == 0 {
		return answer{}, j.err
	}
	a, err := answerJob(v, c.DryRun)
	if repeated {
		a.header["Idempotent-Replayed"] = "true"
	}
	return a, err
}

// performedElsewhere returns the entry of the operations log that an earlier request with the same Idempotency-Key
// wrote. It returns nil if there is no such entry, or if this member knows the job of that request.
func (s *Server) performedElsewhere(ctx context.Context, once opslog.Once) (*admin.RecordedEntry, error) {
	if once == (opslog.Once{}) {
		return nil, nil
	}
	if known, err := s.jobs.keyed(once); known || err != nil {
		return nil, err
	}
	a := s.access(true)
	defer a.Close()
	return admin.Performed(ctx, a, once)
}

// await waits until a job has ended, or the request has used two thirds of its time.
func (s *Server) await(ctx context.Context, j *job) {
	enough := time.NewTimer(s.within - s.within/3)
	defer enough.Stop()
	select {
	case <-j.done:
	case <-enough.C:
	case <-ctx.Done():
	}
}

// runReplay plans a replay and, unless it is a dry run, carries it out. It is the work of a job.
func (s *Server) runReplay(ctx context.Context, j *job, find finding, q admin.ReplayQuery, by admin.By) error {
	a := s.access(j.view.DryRun)
	defer a.Close()
	var err error
	if q.LetterSelection, err = find(ctx, a); err != nil {
		return err
	}
	p, err := admin.PlanReplay(ctx, a, q)
	nothing := errors.Is(err, admin.ErrNothingToDo)
	if err != nil && !nothing {
		return err
	}
	s.jobs.planned(j, p)
	if nothing || j.view.DryRun {
		return nil
	}
	s.Logger.InfoContext(ctx, "replay job started", "job", j.view.ID, "operator", by.Operator, "reason", by.Reason, "dead_letters", p.Count)
	_, err = admin.Replay(ctx, a, p, by, func(progress admin.ReplayProgress) { s.jobs.progressed(j, progress) })
	return err
}
