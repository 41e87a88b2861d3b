package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"sluice/health"
)

// memberReport is the part of a member's /health that shows holds.
type memberReport struct {
	Pipeline     string
	Member       string // its name; "" from a member of an earlier version
	Holds        []health.Hold
	Dependencies []health.Dependency
}

// notAMemberError means that another program responds at an address.
type notAMemberError struct{ url, status string }

func (e *notAMemberError) Error() string {
	return fmt.Sprintf("what answers at %s/health (%s) is no connector", e.url, e.status)
}

// readReport requests the /health of a member, of at most limit bytes. It sends no credentials and follows no redirect.
// It subtracts the memory of the returned holds and dependencies from budget.
func readReport(ctx context.Context, transport http.RoundTripper, url string, limit int64, budget *atomic.Int64) (*memberReport, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()                                                       // read only
	member := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusServiceUnavailable // if it is not ready
	if !member {
		return nil, &notAMemberError{url, resp.Status}
	}
	body := &io.LimitedReader{R: resp.Body, N: limit}
	report, err := decodeReport(body, budget)
	switch {
	case errors.Is(err, errBudget) || ctx.Err() != nil && err != nil:
		return nil, err
	case err != nil && body.N == 0:
		return nil, fmt.Errorf("the response has more than %d MiB", limit>>20)
	case err != nil || report.Pipeline == "":
		return nil, &notAMemberError{url, resp.Status}
	}
	return report, nil
}

// errBudget means that responses of members have too many holds.
var errBudget = errors.New("the members report more holds than one answer may have")

// overhead is the memory of a hold or dependency beside its texts, in bytes.
const overhead = 256

// decodeReport reads a report and keeps only the fields of memberReport. The other fields are large if a member has
// thousands of partitions.
func decodeReport(r io.Reader, budget *atomic.Int64) (*memberReport, error) {
	d, report := json.NewDecoder(r), &memberReport{}
	err := object(d, func(key string) error {
		switch key {
		case "pipeline":
			return d.Decode(&report.Pipeline)
		case "member":
			return d.Decode(&report.Member)
		case "holds":
			return list(d, func() error {
				var h health.Hold
				err := d.Decode(&h)
				report.Holds = append(report.Holds, h)
				return spend(budget, err, h.Topic, h.Reason, h.Detail)
			})
		case "dependencies":
			return list(d, func() error {
				var dep health.Dependency
				err := d.Decode(&dep)
				report.Dependencies = append(report.Dependencies, dep)
				return spend(budget, err, dep.Name, dep.Table, dep.Error)
			})
		}
		return skip(d)
	})
	return report, err
}

// spend subtracts the memory of one element with these texts from the budget. It returns errBudget if the budget is
// used up. If err is not nil, it only returns err.
func spend(budget *atomic.Int64, err error, texts ...string) error {
	if err != nil {
		return err
	}
	size := int64(overhead)
	for _, t := range texts {
		size += int64(len(t))
	}
	if budget.Add(-size) < 0 {
		return errBudget
	}
	return nil
}

// object reads an object and calls field for each key; field reads its value.
func object(d *json.Decoder, field func(key string) error) error {
	if err := delimiter(d, '{'); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if err := field(fmt.Sprint(key)); err != nil {
			return err
		}
	}
	return delimiter(d, '}')
}

// list reads an array, or null, and calls element for each of its elements.
func list(d *json.Decoder, element func() error) error {
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t == nil:
		return nil
	case t != json.Delim('['):
		return fmt.Errorf("%v is no list", t)
	}
	for d.More() {
		if err := element(); err != nil {
			return err
		}
	}
	return delimiter(d, ']')
}

// delimiter reads one delimiter.
func delimiter(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err == nil && t != want {
		err = fmt.Errorf("%v instead of %v", t, want)
	}
	return err
}

// skip reads one value, token by token, so that a large one takes no memory.
func skip(d *json.Decoder) error {
	for depth := 0; ; {
		t, err := d.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
