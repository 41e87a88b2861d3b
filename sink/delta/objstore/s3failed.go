package objstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// s3Error is the error of a failed request to S3. Its text is one line, which replaces the text of the SDK. It wraps
// the error of the SDK with its class.
type s3Error struct {
	what, hint string
	same       string // equal for failures that differ only in an id, a port or a time: see explained.cause
	err        error
}

func (e *s3Error) Error() string                { return hintOf(e.what, e.hint) }
func (e *s3Error) Unwrap() error                { return e.err }
func (e *s3Error) explain() (what, hint string) { return e.what, e.hint }
func (e *s3Error) cause() string                { return e.same }

// keysError means that there are no credentials to sign a request with.
type keysError struct{ err error }

func (e *keysError) Error() string {
	return "no credentials: " + strings.TrimPrefix(e.err.Error(), "failed to refresh cached credentials, ")
}
func (e *keysError) Unwrap() error { return e.err }

// signingKeys wraps errors of its provider in a [keysError].
type signingKeys struct{ aws.CredentialsProvider }

func (k signingKeys) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := k.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return c, &keysError{err}
	}
	return c, nil
}

// failure describes a failed request.
type failure struct {
	*place
	kind     OpKind
	status   int    // HTTP status of the response; 0 without a readable response
	code     string // error code of S3; empty if the response had none
	bucketIn string // region of the bucket, if the response names it
	redirect string // address that the response redirects to, if it does
	plain    bool   // true if the request was sent without TLS
	err      error  // the error as the SDK returned it
}

// describe returns the error of a failed request. err is the error of the SDK, and classified is err with its class.
// status and code are those of the response; status is 0 if there is no response that can be read.
func (s *S3) describe(r *request, kind OpKind, key string, status int, code string, err, classified error) error {
	f := failure{place: &s.place, kind: kind, status: status, code: oneLine(r.hide(code), maxCode), err: err}
	if r.sent != nil {
		f.plain = r.sent.URL.Scheme == "http"
	}
	begin := fmt.Sprintf(`%v %s: bucket "%s" %s: `, kind, shortKey(key), oneLine(s.bucket, maxName), s.at(r))
	if status == 0 {
		e := &s3Error{what: oneLine(begin+r.hide(r.timedOut(err, classified)), maxWhat), same: r.hide(innermost(err)), err: classified}
		if !errors.Is(r.parent.Err(), context.Canceled) { // a caller that gave up needs no hint
			e.hint = f.transportHint()
		}
		return e
	}
	var answered interface {
		HTTPResponse() *smithyhttp.Response
	}
	if errors.As(err, &answered) && answered.HTTPResponse() != nil && answered.HTTPResponse().Response != nil {
		h := answered.HTTPResponse().Header
		f.bucketIn, f.redirect = regionName.FindString(h.Get("X-Amz-Bucket-Region")), origin(r.hide(h.Get("Location")))
	}
	var id string
	var identified interface{ ServiceRequestID() string }
	if errors.As(err, &identified) && identified.ServiceRequestID() != "" {
		id = " (request id " + oneLine(r.hide(identified.ServiceRequestID()), maxCode) + ")"
	}
	text := fmt.Sprintf("%d %s without an S3 error code", status, http.StatusText(status))
	if code != "" {
		text = fmt.Sprintf("%s (%d)", f.code, status)
		if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorMessage() != "" {
			text += ": " + r.hide(api.ErrorMessage())
		}
	}
	return &s3Error{
		what: oneLine(begin+text, maxWhat-utf8.RuneCountInString(id)) + id, hint: f.hint(),
		same: fmt.Sprint(status, " ", f.code), err: classified,
	}
}

// regionName matches the name of a region, such as eu-west-1. A hint repeats the region that a response names only if
// it matches, because a response can contain any text.
var regionName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// at returns where the bucket is, for error texts.
func (p *place) at(r *request) string {
	switch {
	case p.endpoint != "":
		return "at " + p.endpoint
	case r.sent != nil:
		return "at " + oneLine(r.sent.URL.Scheme+"://"+r.sent.URL.Host, maxURL)
	}
	return "in " + oneLine(p.region, maxCode)
}

// timedOut returns the text that says why a request got no response: that of err, or that of an ended ctx or a timeout
// if this was the cause.
func (r *request) timedOut(err, classified error) string {
	text := reason(err)
	switch ended := r.parent.Err(); {
	case ended != nil && !strings.Contains(text, ended.Error()):
		text = ended.Error() + ": " + text
	case ended != nil:
		text = ended.Error()
	case errors.Is(context.Cause(r.ctx), errStalled):
		text = context.Cause(r.ctx).Error()
	}
	if errors.Is(classified, ErrNotSent) && !strings.HasPrefix(text, ErrNotSent.Error()) {
		text = ErrNotSent.Error() + ": " + text
	}
	return text
}

// reason returns the text of an error of the SDK without the SDK's frames, which repeat operation, host and URL.
func reason(err error) string {
	if keys, ok := errors.AsType[*keysError](err); ok {
		return keys.Error()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err.Error()
	}
	if unread, ok := errors.AsType[*smithy.DeserializationError](err); ok && unread.Err != nil {
		return "the response cannot be read: " + innermost(unread.Err)
	}
	if op, ok := errors.AsType[*smithy.OperationError](err); ok && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}

// innermost returns the text of the last error of a chain, which all others wrap.
func innermost(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return oneLine(err.Error(), maxWhat)
}

// minSecret is the shortest length of a request part that is hidden: a shorter access key would hide parts of words.
const minSecret = 8

// hide removes from a text the credentials and the signature of the request, because the response of a store or proxy
// may repeat them.
func (r *request) hide(text string) string {
	if r.sent == nil {
		return text
	}
	signed := r.sent.Header.Get("Authorization")
	secrets := []string{signed, r.sent.Header.Get("X-Amz-Security-Token")}
	for part := range strings.FieldsFuncSeq(signed, func(r rune) bool { return r == ' ' || r == ',' }) {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "Credential":
			key, _, _ := strings.Cut(value, "/")
			secrets = append(secrets, key)
		case "Signature":
			secrets = append(secrets, value)
		}
	}
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < minSecret })
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// origin returns a URL for texts, without user and query; "" if it is not a URL.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	return oneLine(u.String(), maxURL)
}

// failuresError is several requests that failed for different reasons.
type failuresError struct{ all []error }

// distinct returns the failures of several requests as one error. It keeps one failure for each cause; if only one is
// left, it returns that failure itself.
func distinct(failures []error) error {
	var all []error
	known := map[string]bool{}
	for _, err := range failures {
		if cause := causeOf(err); !known[cause] {
			known[cause] = true
			all = append(all, err)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return &failuresError{all}
}

func causeOf(err error) string {
	if e, ok := errors.AsType[explained](err); ok {
		return e.cause()
	}
	return err.Error()
}

func (e *failuresError) Error() string   { return hintOf(e.explain()) }
func (e *failuresError) Unwrap() []error { return e.all }
func (e *failuresError) cause() string   { return causeOf(e.all[0]) }

// explain returns the whole text of the first failure and the causes of the others.
func (e *failuresError) explain() (what, hint string) {
	what, hint = Explain(e.all[0])
	var others []string
	for _, err := range e.all[1:] {
		_, another := Explain(err)
		others, hint = append(others, causeOf(err)), cmp.Or(hint, another)
	}
	also := oneLine("; other requests failed with "+strings.Join(others, ", "), maxWhat/3)
	return oneLine(what, maxWhat-utf8.RuneCountInString(also)) + also, hint
}
