package opslog

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"
)

var (
	someID   = "6f7c8d1e-0000-4000-8000-000000000001"
	someTime = time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC)
)

func first() Entry {
	return Entry{
		Seq: 1, ID: someID, At: someTime, Operator: "ada", Host: "desk", Kind: KindPause, Reason: "disk <full> & hot",
		Body: json.RawMessage(`{"targets":[{"topic":"orders","partition":3}]}`),
	}
}

// object returns the bytes of an entry, even if the entry is invalid.
func object(tb testing.TB, e Entry) []byte {
	tb.Helper()
	b, err := encode(e)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestEntry_Format: the bytes of an entry stay as they are, because other programs may rely on the format.
func TestEntry_Format(t *testing.T) {
	const want = `{"seq":1,"id":"6f7c8d1e-0000-4000-8000-000000000001","prev":"","at":"2026-03-01T12:00:00.000005Z","operator":"ada",` +
		`"host":"desk","kind":"pause","reason":"disk <full> & hot","body":{"targets":[{"topic":"orders","partition":3}]},` +
		`"sum":"ddbc"}` + "\n"
	got := string(object(t, first()))
	at := strings.LastIndex(got, `"sum":"`) + len(`"sum":"`)
	sum := got[at : at+64]
	if sum != hashOf([]byte(got[:at-len(`,"sum":"`)])) {
		t.Errorf("the sum is not that of what stands before it: %s", got)
	}
	if diff := cmp.Diff(strings.Replace(want, "ddbc", sum, 1), got); diff != "" {
		t.Error(diff)
	}
	if got := dir("orders") + name(12); got != "_sluice/orders/ops/00000000000000000012.json" {
		t.Errorf("key %q", got)
	}
}

func TestParse_NotAnEntry(t *testing.T) {
	good := object(t, first())
	for name, c := range map[string]struct {
		object []byte
		want   string
	}{
		"nothing":        {nil, "sum"},
		"cut":            {good[:len(good)-1], "sum"},
		"more behind":    {append(slices.Clip(good), ' '), "sum"},
		"another":        {[]byte(strings.Replace(string(good), "ada", "eva", 1)), "bytes"},
		"not JSON":       {signed(`{"seq":1,,`), "JSON"},
		"an array":       {signed(`[{"seq":1}`), "JSON"},
		"seq 0":          {object(t, with(func(e *Entry) { e.Seq = 0 })), "seq"},
		"no id":          {object(t, with(func(e *Entry) { e.ID = "x" })), "id"},
		"a long id":      {object(t, with(func(e *Entry) { e.ID = "{" + someID + "}" })), "id"},
		"prev at first":  {object(t, with(func(e *Entry) { e.Prev = hashOf(nil) })), "prev"},
		"no prev":        {object(t, with(func(e *Entry) { e.Seq = 2 })), "prev"},
		"prev uppercase": {object(t, with(func(e *Entry) { e.Seq, e.Prev = 2, strings.ToUpper(hashOf(nil)) })), "prev"},
		"no time":        {object(t, with(func(e *Entry) { e.At = time.Time{} })), "when"},
		"nobody":         {object(t, with(func(e *Entry) { e.Operator = "" })), "who"},
		"no reason":      {object(t, with(func(e *Entry) { e.Reason = "" })), "why"},
		"no kind":        {object(t, with(func(e *Entry) { e.Kind = "" })), "what"},
		"no body":        {object(t, with(func(e *Entry) { e.Body = nil })), "body"},
		"no target":      {object(t, with(func(e *Entry) { e.Body = json.RawMessage(`{"targets":[]}`) })), "target"},
		"a wrong target": {object(t, with(func(e *Entry) { e.Body = json.RawMessage(`{"targets":[{"partition":3}]}`) })), "target"},
		"two in one":     {object(t, with(func(e *Entry) { e.Body = json.RawMessage(`{"targets":[{"all":true,"topic":"a"}]}`) })), "target"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(c.object); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want something about %q", err, c.want)
			}
		})
	}
	if _, err := encode(with(func(e *Entry) { e.Reason = strings.Repeat("x", MaxEntry) })); err == nil {
		t.Error("an entry of more than a MiB was written")
	}
}

func with(change func(*Entry)) Entry {
	e := first()
	change(&e)
	return e
}

// signed completes the JSON text of an entry, which ends before its checksum, with the right checksum.
func signed(text string) []byte { return []byte(text + sumBefore + hashOf([]byte(text)) + sumAfter) }

// TestEntry_LaterVersion: entries of a later version, with unknown kinds and more fields, can be read.
func TestEntry_LaterVersion(t *testing.T) {
	text := `{"seq":1,"id":"` + someID + `","prev":"","at":"2026-03-01T12:00:00Z","operator":"ada","kind":"letters.replay","reason":"r","body":[7],"more":{"a":1}`
	e, err := parse(signed(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Decode(); !errors.Is(err, ErrUnknownKind) {
		t.Errorf("%v, want ErrUnknownKind", err)
	}
	if s := new(State).after(e); s.Head() != e.Head() || len(s.Pauses()) != 0 {
		t.Errorf("state %+v", s)
	}
	if string(e.Body) != "[7]" {
		t.Errorf("body %s", e.Body)
	}
}

func drawBody(t *rapid.T) Body {
	target := rapid.Custom(func(t *rapid.T) Target {
		if rapid.IntRange(0, 3).Draw(t, "all") == 0 {
			return All()
		}
		return Target{rapid.StringMatching(`[a-z._-]{1,5}`).Draw(t, "topic"), rapid.Int32Range(-1, 5).Draw(t, "partition")}
	})
	move := rapid.Custom(func(t *rapid.T) Move {
		return Move{
			Topic: "t", TopicID: rapid.SampledFrom([]string{"", "AAAA"}).Draw(t, "id"), Partition: rapid.Int32Range(0, 1<<30).Draw(t, "partition"),
			From: rapid.Int64Min(-1).Draw(t, "from"), To: rapid.Int64Min(0).Draw(t, "to"),
		}
	})
	targets, moves := rapid.SliceOfN(target, 1, 4), rapid.SliceOfN(move, 1, 4)
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		return Pause{targets.Draw(t, "targets")}
	case 1:
		return Resume{targets.Draw(t, "targets")}
	case 2:
		return OffsetsIntent{"offsets set", "orders", moves.Draw(t, "moves")}
	case 4:
		below := rapid.Custom(func(t *rapid.T) Below {
			return Below{rapid.SampledFrom([]string{"", "AAAA"}).Draw(t, "id"), rapid.Int32Range(0, 1<<30).Draw(t, "partition"), rapid.Int64Min(0).Draw(t, "offset")}
		})
		return Forget{"orders", "orders", rapid.SliceOfN(below, 1, 4).Draw(t, "below")}
	case 6:
		at := lettersAt(rapid.SliceOfN(rapid.Int64Range(0, 1<<50), 1, 5).Draw(t, "letters")...)
		return rapid.SampledFrom([]Body{
			Discard{at}, Acknowledge{at}, Reopen{at}, ReplayFailed{"orders", at}, ReplayIntent{Table: "orders", TableID: "id", After: 9, Mode: ByTopic, Letters: at}, ReplayIntent{Table: "orders", TableID: "id", Withdraws: 3, Accepted: at}, ReplayClosed{4, "orders"}, ReplayDone{4, "orders", Conflict, -1, "why"},
		}).Draw(t, "body")
	case 5:
		return ForgetMembers{rapid.SliceOfN(rapid.StringMatching(`[a-z0-9-]{1,9}`), 1, 4).Draw(t, "ids"), rapid.IntRange(0, 9).Draw(t, "more")}
	case 3:
		return FloodAllow{"orders", time.UnixMilli(rapid.Int64Range(1, 1<<40).Draw(t, "until")).UTC()}
	}
	return OffsetsDone{
		Intent: rapid.Int64Min(1).Draw(t, "intent"), Command: "offsets set", Table: "orders", Moves: moves.Draw(t, "moves"),
		Version: rapid.Int64Min(-1).Draw(t, "version"), Outcome: rapid.SampledFrom([]Outcome{Committed, Conflict, Unknown}).Draw(t, "outcome"),
	}
}

// TestEntry_RoundTrip: an entry is the same after encoding and parsing.
func TestEntry_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := drawBody(t)
		op := Operation{rapid.StringN(1, 20, -1).Draw(t, "operator"), rapid.String().Draw(t, "host"), rapid.StringN(1, 50, -1).Draw(t, "reason"), Once{}, body}
		if rapid.Bool().Draw(t, "once") {
			op.Once = Once{hashOf([]byte(op.Operator)), hashOf([]byte(op.Reason))}
		}
		head := Head{}
		if rapid.Bool().Draw(t, "later") {
			head = Head{rapid.Int64Range(1, 1<<40).Draw(t, "seq"), hashOf([]byte("x"))}
		}
		_, object, err := propose(op, &State{head: head})
		if err != nil {
			t.Fatal(err)
		}
		e, err := parse(object)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(body, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		if e.Seq != head.Seq+1 || e.Prev != head.Hash || e.Kind != body.Kind() || e.hash != hashOf(object) || uuid.Validate(e.ID) != nil {
			t.Fatalf("%+v", e)
		}
		if again := object2(e); string(again) != string(object) {
			t.Fatalf("%s is written again as %s", object, again)
		}
	})
}

func object2(e Entry) []byte {
	b, _ := encode(e)
	return b
}

func TestTargets(t *testing.T) {
	for text, want := range map[string]Target{"orders": {"orders", -1}, "orders:3": {"orders", 3}, "a.b_c-d:0": {"a.b_c-d", 0}} {
		got, err := ParseTarget(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q is %+v %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", ":", ":3", "orders:", "orders:x", "orders:-1", "orders:1:2", "orders:99999999999"} {
		if got, err := ParseTarget(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

func TestHeads(t *testing.T) {
	h := Head{12, hashOf(nil)}
	if got, err := ParseHead(h.String()); err != nil || got != h {
		t.Errorf("%v is read as %v %v", h, got, err)
	}
	for _, text := range []string{"", "12", "12:", "0:" + h.Hash, "-1:" + h.Hash, "x:" + h.Hash, "12:" + h.Hash[1:], "12:" + strings.ToUpper(h.Hash)} {
		if got, err := ParseHead(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestNames(t *testing.T) {
	for _, seq := range []int64{1, 9, 10, maxSeq} {
		if got, ok := seqOf(name(seq)); !ok || got != seq {
			t.Errorf("%s is %d %v", name(seq), got, ok)
		}
	}
	for _, s := range []string{"", name(0), "1.json", name(1) + ".bak", "x" + name(1), name(maxSeq + 1), name(math.MaxInt64), "99999999999999999999.json", "-0000000000000000001.json", "+0000000000000000001.json"} {
		if seq, ok := seqOf(s); ok {
			t.Errorf("%q is seq %d", s, seq)
		}
	}
}

// FuzzParse: for any bytes, parse returns an error or an entry that has operator, kind, reason and time.
func FuzzParse(f *testing.F) {
	f.Add(object(f, first()), false)
	f.Add([]byte(`{"seq":1}`), true)
	f.Add([]byte(`{"seq":2,"id":"`+someID+`","prev":"`+hashOf(nil)+`","at":"2026-03-01T12:00:00Z","operator":"a","kind":"resume","reason":"r","body":{"targets":[{"all":true}]}`), true)
	f.Add([]byte(`{"seq":1,"id":"`+someID+`","prev":"","at":"2026-03-01T12:00:00Z","operator":"a","kind":"offsets.done","reason":"r","body":{"intent":1,"command":"c","table":"t","moves":[{"topic":"a"}],"outcome":"won"}`), true)
	f.Fuzz(func(t *testing.T, b []byte, sign bool) {
		if sign {
			b = signed(string(b))
		}
		e, err := parse(b)
		if err != nil {
			return
		}
		if e.Seq < 1 || e.Operator == "" || e.Reason == "" || e.At.IsZero() || e.hash != hashOf(b) {
			t.Fatalf("%+v", e)
		}
		s := new(State).after(e)
		for _, p := range s.Pauses() {
			if e.Kind != KindPause || p.Target.String() == "" {
				t.Fatalf("%+v of %+v", p, e)
			}
		}
	})
}
