package objstore_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"sluice/classify"
	"sluice/sink/delta/objstore"
)

// heldStore is an S3 store whose server responds to a request only when the test allows it.
type heldStore struct {
	*objstore.S3
	arrived atomic.Int64
	status  int
	answers chan struct{}
}

func newHeldStore(t *testing.T, status int) *heldStore {
	h := &heldStore{status: status, answers: make(chan struct{})}
	h.S3 = openS3(t, objstore.S3Config{
		Bucket: "b", Endpoint: "http://127.0.0.1:1", PathStyle: true, AccessKey: "a", SecretKey: "s",
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			h.arrived.Add(1)
			select {
			case <-h.answers:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			return &http.Response{StatusCode: h.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
		}),
	})
	return h
}

// atATime is the largest number of requests that a store has in flight.
const atATime = 64

// TestS3Slots: with any number of goroutines, no more than atATime requests are in flight. If the ctx of a request ends
// while it waits for a slot, it is not sent.
func TestS3Slots(t *testing.T) {
	for name, operation := range operations {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHeldStore(t, http.StatusNoContent)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan struct{})
				for range atATime {
					go func() { _ = operation(ctx, h); done <- struct{}{} }()
				}
				synctest.Wait()
				if n := h.arrived.Load(); n != atATime {
					t.Errorf("%d requests arrived, want %d", n, atATime)
				}
				waiting, giveUp := context.WithCancel(t.Context())
				late := make(chan error)
				go func() { late <- operation(waiting, h) }()
				synctest.Wait()
				if n := h.arrived.Load(); n != atATime {
					t.Errorf("%d requests are under way, want %d", n, atATime)
				}
				giveUp()
				checkError(t, <-late, objstore.ErrNotSent, classify.Canceled, false)

				go func() { _ = operation(t.Context(), h); done <- struct{}{} }()
				h.answers <- struct{}{}
				<-done
				synctest.Wait()
				if n := h.arrived.Load(); n != atATime+1 {
					t.Errorf("%d requests arrived behind an answer, want %d", n, atATime+1)
				}
				close(h.answers)
				for range atATime - 1 {
					<-done
				}
				<-done
			})
		})
	}
}

// TestS3Slots_OpenBodies: a body that is being read occupies no slot, because its reader may make other requests
// meanwhile.
func TestS3Slots_OpenBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldStore(t, http.StatusOK)
		close(h.answers)
		for i := range 2 * atATime {
			body, err := h.Get(t.Context(), fmt.Sprint("key", i), 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			defer body.Close()
		}
		if _, err := h.Head(t.Context(), "key"); err != nil {
			t.Error(err)
		}
	})
}

// TestS3Slots_HeadNotFound: before a HEAD sends the GET that follows it, it gives its slot back. Otherwise many such
// operations would wait for each other for ever.
func TestS3Slots_HeadNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldStore(t, http.StatusNotFound)
		done := make(chan struct{})
		for range atATime {
			go func() { _ = operations["head"](t.Context(), h); done <- struct{}{} }()
		}
		synctest.Wait()
		close(h.answers)
		for range atATime {
			<-done
		}
		if n := h.arrived.Load(); n != 2*atATime {
			t.Errorf("%d requests arrived, want a HEAD and a GET of each", n)
		}
	})
}
