package objstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/smithy-go"

	"sluice/classify"
)

// s3Codes are API codes whose class differs from that of their HTTP status, or whose status varies: throttling has
// many names, and some services send it with 400. Sources: the error responses of the S3 API, aws/retry of the SDK,
// the API errors of MinIO.
var s3Codes = map[string]classify.Class{
	"RequestTimeout":            classify.Transient, // 400: a body that stalled
	"RequestTimeoutException":   classify.Transient,
	"IncompleteBody":            classify.Transient, // 400: a body that was cut off
	"BadDigest":                 classify.Transient, // 400: damaged in transit
	"XAmzContentSHA256Mismatch": classify.Transient, // 400: damaged in transit, too

	"SlowDown":                               classify.Transient,
	"SlowDownRead":                           classify.Transient,
	"SlowDownWrite":                          classify.Transient,
	"Throttling":                             classify.Transient, // 400
	"ThrottlingException":                    classify.Transient, // 400
	"ThrottledException":                     classify.Transient,
	"RequestThrottled":                       classify.Transient,
	"RequestThrottledException":              classify.Transient,
	"RequestLimitExceeded":                   classify.Transient,
	"BandwidthLimitExceeded":                 classify.Transient,
	"LimitExceededException":                 classify.Transient,
	"TooManyRequestsException":               classify.Transient,
	"ProvisionedThroughputExceededException": classify.Transient,
	"PriorRequestNotComplete":                classify.Transient,
	"TransactionInProgressException":         classify.Transient,
	"EC2ThrottledException":                  classify.Transient,

	"OperationAborted":           classify.Transient,
	"ConditionalRequestConflict": classify.Transient,

	"QuotaExceeded":                  classify.Transient, // 403: full, like a disk
	"XMinioAdminBucketQuotaExceeded": classify.Transient, // 400: full, too

	"NoSuchBucket":                 classify.Fatal, // 404
	"PermanentRedirect":            classify.Fatal, // 301: the bucket is in another region
	"AuthorizationHeaderMalformed": classify.Fatal, // 400: the bucket is in another region, too
}

// s3Stale are API codes of expired temporary credentials, sent with 400.
var s3Stale = map[string]bool{
	"ExpiredToken": true, "ExpiredTokenException": true, "InvalidToken": true, "TokenRefreshRequired": true,
}

// translate maps an error of the SDK to the contract of [Store] and gives it a text of one line. For [ErrNotFound] and
// [ErrExists] it returns only the sentinel with its class. After a denial the next request reads the keys again.
func (s *S3) translate(r *request, kind OpKind, key string, err error) error {
	if err == nil {
		return nil
	}
	status, code := responseError(err)
	if status == http.StatusUnauthorized || status == http.StatusForbidden || s3Stale[code] {
		if s.keys != nil {
			s.keys.Invalidate()
		}
	}
	if status == 0 {
		return s.describe(r, kind, key, 0, "", err, r.noResponse(err))
	}
	classified := s3Response(kind, status, code, err)
	if errors.Is(classified, ErrNotFound) || errors.Is(classified, ErrExists) {
		return classified
	}
	return s.describe(r, kind, key, status, code, err, classified)
}

// responseError returns the status and code of the store's response. status is 0 without a readable response.
func responseError(err error) (status int, code string) {
	var answered interface{ HTTPStatusCode() int }
	if errors.As(err, &answered) {
		status = answered.HTTPStatusCode()
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok && !derived(api, status) {
		code = api.ErrorCode()
	}
	if status >= 200 && status < 300 && code == "" {
		status = 0 // the response was a success whose body ended early: the effect of the request is unknown
	}
	return status, code
}

// derived reports whether the SDK derived the code from the HTTP status, because the body had none.
func derived(api smithy.APIError, status int) bool {
	text := http.StatusText(status)
	return api.ErrorMessage() == text && api.ErrorCode() == strings.ReplaceAll(text, " ", "")
}

// s3Missing are the API codes by which a store says that an object does not exist. A 404 without one of them may come
// from a proxy or ingress while the service restarts.
var s3Missing = map[string]bool{"NoSuchKey": true, "NotFound": true}

// s3Response returns the error that [Store] promises for a response with this status and code. err is the error of the
// SDK for it. The result wraps err, with a class and the sentinel; for [ErrNotFound] and [ErrExists] it is the sentinel
// alone.
func s3Response(kind OpKind, status int, code string, err error) error {
	put := kind == OpPut || kind == OpPutIfAbsent
	class, special := s3Codes[code]
	switch {
	case special && class == classify.Transient:
		return classify.Mark(err, classify.Transient)
	case special, s3Stale[code]:
		return classify.Mark(fmt.Errorf("%w: %w", ErrRefused, err), classify.Fatal)
	case status == http.StatusPreconditionFailed && kind == OpPutIfAbsent:
		return errExists
	case status == http.StatusNotFound && s3Missing[code] && !put:
		return errNotFound
	case status == http.StatusNotFound: // the 404 does not come from S3; the outcome of a put is unknown
		return classify.Mark(err, classify.Transient)
	case status == http.StatusNotImplemented, status == http.StatusHTTPVersionNotSupported:
		return classify.Mark(fmt.Errorf("%w: %w", ErrRefused, err), classify.Fatal)
	case status < 300, status >= 500:
		return classify.Mark(err, classify.Transient)
	}
	if class, known := classify.OfStatus(status); known && class == classify.Transient {
		return classify.Mark(err, classify.Transient)
	}
	return classify.Mark(fmt.Errorf("%w: %w", ErrRefused, err), classify.Fatal)
}

// beyondEnd reports whether the range of a Get begins at or after the end of the object.
func beyondEnd(err error) bool {
	status, _ := responseError(err)
	return status == http.StatusRequestedRangeNotSatisfiable
}

// noResponse returns the error of a request without a response. Only a request that was never sent is known to have
// no effect.
func (r *request) noResponse(err error) error {
	switch {
	case r.parent.Err() != nil:
		err = fmt.Errorf("%w: %v", r.parent.Err(), err) //nolint:errorlint // ours is the reason
	case errors.Is(context.Cause(r.ctx), errStalled):
		err = classify.Mark(fmt.Errorf("%w: %v", errStalled, err), classify.Transient) //nolint:errorlint // the SDK says "canceled"
	case classify.Untrusted(err), errors.Is(err, http.ErrSchemeMismatch):
		err = classify.Mark(err, classify.Fatal)
	case errors.Is(err, ErrNotSent):
		return err
	default:
		if class, known := classify.Known(err); !known || class == classify.Canceled {
			err = classify.Mark(err, classify.Transient)
		}
	}
	if !r.left.Load() {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return err
}
