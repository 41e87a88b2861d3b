package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/reliability"
	"sluice/secure"
	"sluice/sink/opslog"
)

const (
	// maxAttempts is how often a client sends a change whose outcome is unknown, always with the same Idempotency-Key.
	maxAttempts = 3
	// responseBytes bounds the response that a client reads.
	responseBytes = 64 << 20
	// tokenBytes bounds a file with a token.
	tokenBytes = 4 << 10
)

// ClientOptions says which API a [Client] uses, and how.
type ClientOptions struct {
	Server    string        // URL of a member, as [ParseServer] accepts it
	TokenFile string        // file with a token; "" for none
	CAFile    string        // CA certificates of the server; "" for those of the system
	Within    time.Duration // how long one request may take
}

// Client uses the API of a member. The errors of its methods have a kind of package fail. None has the token.
type Client struct {
	server string
	token  string // never in a text
	within time.Duration
	wait   time.Duration // before a change is sent again
	http   *http.Client
}

// ParseServer checks the URL of a member: scheme, host and port, nothing else. It returns the URL without a slash at the
// end.
func ParseServer(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "", errors.New("not the URL of a member: write one such as http://127.0.0.1:8090")
	case u.User != nil:
		return "", errors.New("the URL of a member has no user and no password: the token is in a file")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("the URL of a member ends with its host and port, such as http://127.0.0.1:8090")
	}
	return u.Scheme + "://" + u.Host, nil
}

// NewClient returns a client. It refuses to send a token to another machine without TLS.
func NewClient(o ClientOptions) (*Client, error) {
	server, err := ParseServer(o.Server)
	if err != nil {
		return nil, fail.Usage(err)
	}
	c := &Client{server: server, within: o.Within, wait: time.Second}
	if o.TokenFile != "" {
		if c.token, err = readToken(o.TokenFile); err != nil {
			return nil, fail.Usage(err)
		}
		if u, err := url.Parse(server); err != nil || u.Scheme != "https" && !secure.Loopback(u.Hostname()) {
			return nil, fail.Usage(fmt.Errorf("%s is another machine, and others could read the token on its way: use https", server))
		}
	}
	roots, err := secure.Roots(o.CAFile)
	if err != nil {
		return nil, fail.Usage(fmt.Errorf("file with CA certificates: %w", err))
	}
	// No proxy and no redirect: only the member gets the token.
	c.http = &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// readToken reads the only word of a file. Its errors do not quote the file.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("file with the token: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	b, err := io.ReadAll(io.LimitReader(f, tokenBytes))
	if err != nil {
		return "", fmt.Errorf("file with the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(b) == tokenBytes || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s has to contain one token and nothing else: docs/api.md says how to make one", path)
	}
	return token, nil
}

// call is a request of a client.
type call struct {
	method, path string // below prefix
	query        url.Values
	body         any    // nil for none
	key          string // Idempotency-Key; "" for none
}

// do sends a request and decodes the response into v. If a request with a key may have had an effect that the client
// does not know, do sends it again.
func (c *Client) do(ctx context.Context, r call, v any) error {
	for attempt := 1; ; attempt++ {
		unknown, err := c.send(ctx, r, v)
		if err == nil || !unknown || r.key == "" {
			return err
		}
		if attempt == maxAttempts || reliability.Wait(ctx, c.wait) != nil {
			return fail.Dependency(fmt.Errorf("it may have been done: look for it in connector audit list before you repeat it: %w", err))
		}
	}
}

// send sends a request once. unknown is true if it failed and the server may have carried it out.
func (c *Client) send(ctx context.Context, r call, v any) (unknown bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	address := c.server + prefix + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	var body io.Reader = http.NoBody
	if r.body != nil {
		b, err := json.Marshal(r.body)
		if err != nil {
			return false, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err != nil {
		return false, fail.Usage(err)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	connected := false
	trace := httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	got, err := c.http.Do(req.WithContext(httptrace.WithClientTrace(ctx, &trace)))
	if err != nil {
		return connected, fail.Dependency(fmt.Errorf("the ops API does not respond: %w", err)) // err has the URL
	}
	defer func() { _ = got.Body.Close() }() // read only
	b, err := io.ReadAll(io.LimitReader(got.Body, responseBytes+1))
	switch {
	case err != nil:
		return true, fail.Dependency(fmt.Errorf("%s: read the response: %w", c.server, err))
	case len(b) > responseBytes:
		return false, fail.Dependency(fmt.Errorf("%s: the response has more than %d bytes", c.server, responseBytes))
	case got.StatusCode != http.StatusOK && got.StatusCode != http.StatusAccepted:
		return c.refused(got, b)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fail.Dependency(fmt.Errorf("%s: the response is not that of an ops API of this version: %w", c.server, err))
	}
	return false, nil
}

// refused returns the error of a response that is a problem. unknown is as for send.
func (c *Client) refused(got *http.Response, body []byte) (unknown bool, err error) {
	var p problem
	if media, _, _ := strings.Cut(got.Header.Get("Content-Type"), ";"); media != "application/problem+json" || json.Unmarshal(body, &p) != nil || p.Code == "" {
		return got.StatusCode >= http.StatusInternalServerError, fail.Dependency(fmt.Errorf("%s: %s, and not by an ops API: is this the address of ops.listen?", c.server, got.Status))
	}
	return p.Code == codeUnknown, &fail.Error{Kind: p.kind(), Err: fmt.Errorf("%s: %s: %s", c.server, p.Code, p.Detail)}
}

// kind returns what a command makes of a problem.
func (p *problem) kind() fail.Kind {
	switch p.Code {
	case codeFound, codeNotFound:
		return fail.KindFound
	case codeRefused, codeAmbiguous, codeKeyReused:
		return fail.KindRefused
	default:
	}
	if p.Status >= http.StatusInternalServerError || p.Status == http.StatusTooManyRequests {
		return fail.KindDependency
	}
	return fail.KindUsage // the token, the body or the configuration of the member
}

// each calls add with each page of a list, until add returns false or the list ends. next returns the cursor of the page
// that add got.
func each[T any](ctx context.Context, c *Client, path string, query url.Values, next func(*T) string, add func(*T) bool) error {
	query.Set("limit", cmp.Or(query.Get("limit"), strconv.Itoa(maxLimit)))
	for {
		page := new(T)
		if err := c.do(ctx, call{method: http.MethodGet, path: path, query: query}, page); err != nil {
			return err
		}
		if !add(page) || next(page) == "" {
			return nil
		}
		query.Set("cursor", next(page))
	}
}

// parameters returns the parameters that are not "".
func parameters(pairs ...string) url.Values {
	query := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if name, value := pair[0], pair[1]; value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// Holds returns the holds of a topic, or all if it is "".
func (c *Client) Holds(ctx context.Context, topic string) (*admin.HoldReport, error) {
	r := &admin.HoldReport{Holds: []*admin.Hold{}, Member: true}
	return r, each(ctx, c, "holds", parameters("topic", topic), func(p *holdsPage) string { return p.Next }, func(p *holdsPage) bool {
		r.Holds, r.Members, r.Missed = append(r.Holds, p.Holds...), p.Members, nil
		for _, text := range p.Missed {
			r.Missed = append(r.Missed, errors.New(text))
		}
		return true
	})
}

// Positions returns the positions of a topic, or of all topics if it is "".
func (c *Client) Positions(ctx context.Context, topic string) ([]admin.Position, error) {
	all := []admin.Position{}
	err := each(ctx, c, "positions", parameters("topic", topic), func(p *positionsPage) string { return p.Next }, func(p *positionsPage) bool {
		all = append(all, p.Positions...)
		return true
	})
	return all, err
}

// Members returns the registered members.
func (c *Client) Members(ctx context.Context) (*admin.MemberReport, error) {
	r := &admin.MemberReport{}
	return r, each(ctx, c, "members", url.Values{}, func(p *membersPage) string { return p.Next }, func(p *membersPage) bool {
		p.Members.Members = append(r.Members.Members, p.Members.Members...)
		r.Members = p.Members
		return true
	})
}

// Audit returns the operations since a time.
func (c *Client) Audit(ctx context.Context, oldest time.Time) (*admin.AuditReport, error) {
	r := &admin.AuditReport{Entries: []admin.RecordedEntry{}}
	return r, each(ctx, c, "audit", url.Values{}, func(p *auditPage) string { return p.Next }, func(p *auditPage) bool {
		r.Unreadable = append(r.Unreadable, p.Unreadable...)
		for _, e := range p.Entries {
			r.Head = &opslog.Head{Seq: e.Seq, Hash: e.Hash}
			if !e.At.Before(oldest) {
				r.Entries = append(r.Entries, e)
			}
		}
		return true
	})
}

// DeadLetters lists dead letters in the order of their records: limit of them, or all if it is 0.
func (c *Client) DeadLetters(ctx context.Context, by Letters, limit int) (*admin.LetterList, error) {
	query := parameters("topic", by.Topic, "code", by.Code, "since", by.Since, "state", strings.Join(by.States, ","))
	if limit > 0 {
		query.Set("limit", strconv.Itoa(min(limit, maxLimit)))
	}
	var list *admin.LetterList
	err := each(ctx, c, "deadletters", query, func(p *lettersPage) string { return p.Next }, func(p *lettersPage) bool {
		if list != nil {
			p.Listed = append(list.Listed, p.Listed...)
		}
		list = p.LetterList
		if limit > 0 && len(list.Listed) >= limit {
			list.Listed = list.Listed[:limit]
			return false
		}
		return true
	})
	return list, err
}

// DeadLetter returns a dead letter by the coordinates of its record, or by its own.
func (c *Client) DeadLetter(ctx context.Context, o admin.LetterSearch) (*ShownLetter, error) {
	path := fmt.Sprintf("deadletters/%s/%d/%d", url.PathEscape(o.Topic), o.Partition, o.Offset)
	l := &ShownLetter{}
	return l, c.do(ctx, call{method: http.MethodGet, path: path, query: parameters("topic_id", o.TopicID)}, l)
}

// Config returns the configuration in force.
func (c *Client) Config(ctx context.Context) ([]config.Value, error) {
	all := []config.Value{}
	err := each(ctx, c, "config", url.Values{}, func(p *valuesPage) string { return p.Next }, func(p *valuesPage) bool {
		all = append(all, p.Values...)
		return true
	})
	return all, err
}

// LogLevel returns the level of the log.
func (c *Client) LogLevel(ctx context.Context) (*LogLevel, error) {
	l := &LogLevel{}
	return l, c.do(ctx, call{method: http.MethodGet, path: "loglevel"}, l)
}

// SetLogLevel sets the level of the log.
func (c *Client) SetLogLevel(ctx context.Context, level string, ch Change) (*LogLevel, error) {
	l := &LogLevel{}
	return l, c.do(ctx, call{method: http.MethodPut, path: "loglevel", body: levelBody{level, ch.common()}}, l)
}

// Change is what all requests have that change something.
type Change struct {
	Reason string
	DryRun bool
	Key    string // Idempotency-Key; "" for none
}

func (ch Change) common() common { return common{ch.Reason, ch.DryRun} }

// DecideTargets sends a decision about topics and partitions, or about all without targets. path is pause, resume, flush
// or holds/recheck.
func (c *Client) DecideTargets(ctx context.Context, path string, targets []string, ch Change) (*Decided, error) {
	return c.decide(ctx, path, scope{ch.common(), targets, len(targets) == 0}, ch)
}

// DecideLetters sends a decision about dead letters. path is deadletters/discard, acknowledge or reopen.
func (c *Client) DecideLetters(ctx context.Context, path string, of Letters, ch Change) (*Decided, error) {
	return c.decide(ctx, path, lettersBody{ch.common(), of}, ch)
}

// Allow allows any number of dead letters of a topic for a time.
func (c *Client) Allow(ctx context.Context, topic string, lasts time.Duration, ch Change) (*Decided, error) {
	return c.decide(ctx, "deadletters/allow", allowBody{ch.common(), topic, lasts.String()}, ch)
}

func (c *Client) decide(ctx context.Context, path string, body any, ch Change) (*Decided, error) {
	d := &Decided{}
	return d, c.do(ctx, call{method: http.MethodPost, path: path, body: body, key: ch.Key}, d)
}

// Replaying says what a replay takes, and how.
type Replaying struct {
	Letters

	Value []byte // of the only record, instead of its own; nil for its own
	Rate  float64
	Mode  string
}

// Replay starts a replay of the records that are named, or otherwise of all dead letters that are selected.
func (c *Client) Replay(ctx context.Context, o Replaying, ch Change) (*Started, error) {
	f := filter{Code: o.Code, Since: o.Since, Until: o.Until, States: o.States, Rate: &o.Rate, Mode: o.Mode}
	r := call{method: http.MethodPost, path: "dlq/replay-all", query: parameters("topic", o.Topic), key: ch.Key}
	if len(o.Records) == 0 {
		r.body = replayAllBody{common: ch.common(), filter: f, All: o.Topic == ""}
	} else {
		body := replayBody{common: ch.common(), filter: f, Records: o.Records, TopicID: o.TopicID}
		if o.Value != nil {
			body.Value, body.ValueEncoding = new(base64.StdEncoding.EncodeToString(o.Value)), "base64"
		}
		r.path, r.query, r.body = "dlq/replay", nil, body
	}
	s := &Started{}
	return s, c.do(ctx, r, s)
}

// Job returns a job of the member.
func (c *Client) Job(ctx context.Context, id string) (*Job, error) {
	j := &Job{}
	return j, c.do(ctx, call{method: http.MethodGet, path: "jobs/" + url.PathEscape(id)}, j)
}

// Result returns what a job has done so far.
func (j *Job) Result() *admin.ReplayResult {
	r := &admin.ReplayResult{Rows: j.Rows, Failed: j.Failed, Parked: j.Parked, Commits: j.Tables, First: j.First, Operation: j.Operation}
	setLeftOut(&r.LeftOut, j.LeftOut)
	return r
}

func setLeftOut[K ~string](to *map[K]int, from map[string]int) {
	*to = map[K]int{}
	for why, n := range from {
		(*to)[K(why)] = n
	}
}

// Err returns why a job that has ended did not do all of its work, nil if it did.
func (j *Job) Err() error {
	switch j.State {
	case jobFailed:
		p := newProblem(j.Error.Code, "%s", j.Error.Detail)
		return &fail.Error{Kind: p.kind(), Err: fmt.Errorf("job %s: %s: %s", j.ID, p.Code, p.Detail)}
	case jobCancelled:
		return fail.Refused(fmt.Errorf("job %s was cancelled by %s: %s; repeat the command for the rest", j.ID, j.CancelledBy, j.CancelReason))
	case jobStopped:
		return fail.Dependency(fmt.Errorf("job %s: member %s stopped; repeat the command for the rest", j.ID, j.Member))
	default:
		return nil
	}
}
