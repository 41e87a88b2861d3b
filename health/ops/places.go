package ops

import (
	"fmt"
	"net"
	"net/http"
	"sync"
)

// progressBytes is the size of the pieces in which a large response is written: each one that the connection takes
// counts as progress.
const progressBytes = 16 << 10

// places limits how many large responses exist at the same time. A request whose handler would exceed the limit ends
// the response that its client does not read, so that clients that never read cannot keep out a scraper. While no
// request waits, a slow client has all the time of responseTimeout.
type places struct {
	taken chan struct{}        // has an element for each place that is taken
	abort func(address string) // closes the connection of a client address
	log   func()               // counts and logs that a connection was closed

	mu        sync.Mutex
	responses map[*largeResponse]struct{}
	turns     uint64 // number of pieces so far, of all responses
}

func newPlaces(limit int, abort func(address string), log func()) *places {
	return &places{taken: make(chan struct{}, limit), abort: abort, log: log, responses: map[*largeResponse]struct{}{}}
}

// largeResponse is a response that has a place.
type largeResponse struct {
	http.ResponseWriter

	places  *places
	address string // of the client, with its port
	host    string // the same without the port

	// Guarded by places.mu.
	since uint64 // value of places.turns when the writing of the current piece began; 0 while nothing is being written
	ended bool   // true once the connection has been closed to make room
}

// limit passes a request to next once it has a place, and to busy if it gets none. A request keeps its place until the
// client has read the response, because the server holds the response until then.
func (p *places) limit(next, busy http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil { // cannot happen with TCP
			host = r.RemoteAddr
		}
		select {
		case p.taken <- struct{}{}:
		default:
			if !p.makeRoom(host) {
				busy(w, r)
				return
			}
			p.log()
			select {
			case p.taken <- struct{}{}: // the ended response leaves it: its write fails at once
			case <-r.Context().Done():
				return
			}
		}
		l := &largeResponse{ResponseWriter: w, places: p, address: r.RemoteAddr, host: host}
		p.mu.Lock()
		p.responses[l] = struct{}{}
		p.mu.Unlock()
		defer p.leave(l)
		next(l, r)
	}
}

func (p *places) leave(l *largeResponse) {
	p.mu.Lock()
	delete(p.responses, l)
	p.mu.Unlock()
	<-p.taken
}

// makeRoom ends a response for a request from host. It returns false if no response may be ended.
func (p *places) makeRoom(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock() // after the connection is closed: else it could serve its next request by then
	l := p.unread(host)
	if l == nil {
		return false
	}
	l.ended = true
	p.abort(l.address)
	return true
}

// unread returns the response to end for a request from host: one that waits for its client to read, of the host with
// the most responses, without progress for the longest time. It returns nil if no response waits, or only responses of
// hosts that have fewer than the given one: so a host that sends many requests ends its own responses only.
func (p *places) unread(host string) *largeResponse {
	of := map[string]int{}
	for l := range p.responses {
		if !l.ended {
			of[l.host]++
		}
	}
	var found *largeResponse
	for l := range p.responses {
		if l.ended || l.since == 0 || of[l.host] < of[host] {
			continue
		}
		if found == nil || of[l.host] > of[found.host] || of[l.host] == of[found.host] && l.since < found.since {
			found = l
		}
	}
	return found
}

// Write implements [http.ResponseWriter].
func (l *largeResponse) Write(b []byte) (int, error) {
	for written := 0; ; {
		l.writes(true)
		n, err := l.ResponseWriter.Write(b[written:min(len(b), written+progressBytes)])
		l.writes(false)
		if written += n; err != nil {
			return written, fmt.Errorf("write response: %w", err)
		}
		if written >= len(b) {
			return written, nil
		}
	}
}

// writes notes that the writing of a piece begins or has ended.
func (l *largeResponse) writes(begins bool) {
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	l.since = 0
	if begins {
		l.places.turns++
		l.since = l.places.turns
	}
}
