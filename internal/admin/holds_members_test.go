package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/health/membership"
	"sluice/reliability/hold"
)

// machines is an HTTP transport that answers for other machines, by host:port. It fails the test if a request is not a
// plain GET of /health, or has a header, which could hold credentials.
type machines struct {
	*testing.T
	answers map[string]answering

	mu   sync.Mutex
	seen map[string]int
	now  int // requests under way
	most int
}

func (m *machines) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet || r.URL.Path != "/health" || r.URL.RawQuery != "" || r.URL.User != nil || len(r.Header) > 0 || r.Body != nil {
		m.Errorf("%s %s with header %v", r.Method, r.URL, r.Header)
	}
	m.mu.Lock()
	m.seen[r.URL.Host]++
	m.now++
	m.most = max(m.most, m.now)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.now--
		m.mu.Unlock()
	}()
	status, body, err := m.answers[r.URL.Host](r.Context())
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{"Location": {"http://elsewhere:1/health"}},
		Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// answering is how a machine answers.
type answering func(ctx context.Context) (status int, body string, err error)

// says answers with a status and a body.
func says(status int, body string) answering {
	return func(context.Context) (int, string, error) { return status, body, nil }
}

// never gives no answer: it returns an error when the request ends.
func never(ctx context.Context) (int, string, error) {
	<-ctx.Done()
	return 0, "", ctx.Err()
}

// active returns an active member at host:port, or without an address.
func active(id, host string) membership.Member {
	m := membership.Member{Beat: membership.Beat{ID: id, TTL: time.Minute}, Registered: true}
	if host != "" {
		m.Address = "http://" + host
	}
	return m
}

const oneHold = `"holds":[{"topic":"orders","partition":3,"reason":"store_down","detail":"no route","since":"2026-01-31T08:00:00Z","offset":-1}]`

// TestRequestEach: each active member is asked once, without credentials, and no redirect is followed. If a response is
// not a report of that member, the member is listed as failed, and the holds of the other members are still shown.
func TestRequestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{T: t, seen: map[string]int{}, answers: map[string]answering{
			"good:1":   says(503, `{"status":"down","pipeline":"p","components":{"x":[{"y":[1,{"z":null}]}]},"member":"good",`+oneHold+`,"partitions":[{}],"dependencies":null}`),
			"old:1":    says(200, `{"pipeline":"p",`+strings.ReplaceAll(oneHold, ":3,", ":4,")+`}`),
			"fails:1":  says(200, `{"pipeline":"p","member":"fails","holds":[],"dependencies":[{"name":"kafka","failing_since":"2026-01-31T08:00:00Z","error":"reset"}]}`),
			"silent:1": never,
			"heir:1":   says(200, `{"pipeline":"p","member":"heir-2",`+oneHold+`}`),
			"other:1":  says(200, `{"pipeline":"q","member":"other",`+oneHold+`}`),
			"moved:1":  says(302, `{"pipeline":"p","member":"moved",`+oneHold+`}`),
			"html:1":   says(200, `<html>`),
			"cut:1":    says(200, `{"pipeline":"p","member":"cut",`+oneHold),
			"list:1":   says(200, `[{"pipeline":"p"}]`),
			"nobody:1": says(200, `{"holds":[]}`),
			"large:1":  says(200, `{"pipeline":"p","member":"large","partitions":[`+strings.Repeat(`{"topic":"x"},`, registeredBytes/14+1)+`{}],"holds":[]}`),
			"down:1":   func(context.Context) (int, string, error) { return 0, "", errors.New("connection refused") },
		}}
		members := []membership.Member{active("none", "")}
		for _, id := range []string{"good", "old", "fails", "silent", "heir", "other", "moved", "html", "cut", "list", "nobody", "large", "down"} {
			members = append(members, active(id, id+":1"))
		}
		gone, expired := active("gone", "gone:1"), active("expired", "expired:1")
		gone.Registered, expired.Age = false, time.Hour
		start, r := time.Now(), &registeredResult{}
		r.requestEach(t.Context(), append(members, gone, expired), "p", m)
		if took := time.Since(start); took != registeredTime {
			t.Errorf("it took %s", took)
		}

		var got []string
		for _, a := range r.answers {
			got = append(got, fmt.Sprintf("%s %s %s", a.ID, a.State, a.Error))
		}
		if d := cmp.Diff([]string{
			"none no_address ", "good answered ", "old answered ", "fails answered ", "silent failed it did not respond in time",
			`heir failed the member there is "heir-2", which took over the address`, `other failed the member there is of pipeline "q"`,
			"moved failed what answers at http://moved:1/health (302) is no connector", "html failed what answers at http://html:1/health (200) is no connector",
			"cut failed what answers at http://cut:1/health (200) is no connector", "list failed what answers at http://list:1/health (200) is no connector",
			"nobody failed what answers at http://nobody:1/health (200) is no connector", "large failed the response has more than 2 MiB",
			`down failed Get "http://down:1/health": connection refused`,
		}, got); d != "" {
			t.Errorf("answers (-want +got):\n%s", d)
		}
		var holds []string
		for _, s := range r.sources {
			for _, h := range s.all {
				holds = append(holds, h.Name()+" "+string(h.Reason)+" "+strings.Join(h.From, ","))
			}
		}
		if d := cmp.Diff([]string{"orders:3 store_down good", "orders:4 store_down old"}, holds); d != "" {
			t.Errorf("holds (-want +got):\n%s", d)
		}
		for _, a := range r.answers {
			if want := a.State == MemberFailed; strings.Contains(fmt.Sprint(r.missed), "the holds that only the member "+a.ID+" at ") != want {
				t.Errorf("%s is missed: %v, in %v", a.ID, !want, r.missed)
			}
			if want := min(len(a.Address), 1); m.seen[a.ID+":1"] != want {
				t.Errorf("%s got %d requests", a.ID, m.seen[a.ID+":1"])
			}
		}
		if len(r.sources) != 3 || len(r.sources[2].missed) != 1 || !strings.Contains(r.sources[2].missed[0].Error(), "the member fails: kafka has failed since ") {
			t.Errorf("a dependency of a member: %v", r.sources)
		}
		if m.seen["gone:1"]+m.seen["expired:1"]+m.seen["elsewhere:1"] > 0 {
			t.Errorf("a member that is not active, or a redirect, got a request: %v", m.seen)
		}
	})
}

// TestRequestEach_Time: members that do not respond are asked a few at a time, and only until the time is over.
func TestRequestEach_Time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{T: t, seen: map[string]int{}, answers: map[string]answering{"quick:1": says(200, `{"pipeline":"p",`+oneHold+`}`)}}
		members := []membership.Member{active("quick", "quick:1")}
		for i := range maxRequested + 50 {
			host := fmt.Sprintf("m%03d:1", i)
			members, m.answers[host] = append(members, active(host[:4], host)), never
		}
		const within = 2*registeredTime + registeredTime/2
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		start, r := time.Now(), &registeredResult{}
		r.requestEach(ctx, members, "p", m)
		if took := time.Since(start); took != within {
			t.Errorf("it took %s", took)
		}
		states := map[string]int{}
		for _, a := range r.answers {
			states[string(a.State)]++
		}
		if d := cmp.Diff(map[string]int{"answered": 1, "failed": 3 * requestedAtOnce, "not_asked": maxRequested - 1 - 3*requestedAtOnce}, states); d != "" {
			t.Errorf("states (-want +got):\n%s", d)
		}
		if m.most != requestedAtOnce {
			t.Errorf("%d requests at once", m.most)
		}
		if len(r.sources) != 1 || len(r.missed) != maxRequested || !strings.Contains(r.missed[0].Error(), "51 of 251 members were not asked") {
			t.Errorf("%d sources, %d missed, %v", len(r.sources), len(r.missed), r.missed[0])
		}
	})
}

// TestRequestEach_Budget: if the reports of all members together exceed the memory for them, some members are left out,
// with an error for each.
func TestRequestEach_Budget(t *testing.T) {
	m := &machines{T: t, seen: map[string]int{}, answers: map[string]answering{}}
	one := `{"topic":"orders","reason":"flood","detail":"` + strings.Repeat("x", 1<<20) + `"}`
	var members []membership.Member
	for i := range 12 {
		host := fmt.Sprintf("m%02d:1", i)
		members = append(members, active(host[:3], host))
		m.answers[host] = says(200, `{"pipeline":"p","holds":[`+one+`]}`)
	}
	r := &registeredResult{}
	r.requestEach(t.Context(), members, "p", m)
	if len(r.sources) != 7 || len(r.missed) != 5 || !strings.Contains(fmt.Sprint(r.missed), "more holds than one answer may have") {
		t.Errorf("%d sources, %v", len(r.sources), r.missed)
	}
}

// TestRegisteredTransport: requests to loopback addresses fail and do not arrive, also if a name resolves to such an
// address or HTTP_PROXY names a proxy.
func TestRegisteredTransport(t *testing.T) {
	var got atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	t.Setenv("HTTP_PROXY", server.URL)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		budget := new(atomic.Int64)
		budget.Store(1 << 20)
		if _, err := readReport(t.Context(), registeredTransport(), "http://"+host+":"+port, 1<<20, budget); err == nil || !strings.Contains(err.Error(), "not one of another machine") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if got.Load() > 0 {
		t.Errorf("%d requests arrived", got.Load())
	}
}

// TestHeld_Pauses: a pause of a topic or pipeline includes those of its partitions; other holds do not.
func TestHeld_Pauses(t *testing.T) {
	var h held
	h.add("log", "orders", -1, hold.Paused, "d", time.Time{}, -1)
	h.add("m", "orders", 1, hold.Paused, "d", time.Time{}, -1)
	h.add("m", "users", 1, hold.Paused, "d", time.Time{}, -1)
	h.add("m", "orders", 1, hold.Flood, "d", time.Time{}, -1)
	h.add("n", "orders", 1, hold.Flood, "d", time.Unix(5, 0), 7)
	h.add("n", "orders", -1, hold.Flood, "d", time.Time{}, -1)
	h.add("log", "", -1, hold.Paused, "d", time.Time{}, -1)
	h.add("m", "payments", 2, hold.Paused, "d", time.Time{}, -1)
	var got []string
	for _, p := range h.all {
		got = append(got, p.Name()+" "+string(p.Reason)+" "+strings.Join(p.From, ","))
	}
	if d := cmp.Diff([]string{"orders paused log,m", "users:1 paused m", "orders:1 flood m,n", "orders flood n", "everything paused log,m"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
