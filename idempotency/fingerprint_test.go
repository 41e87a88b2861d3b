package idempotency_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"sluice/idempotency"
)

func identity(t *testing.T, s string) idempotency.Identity {
	t.Helper()
	id, err := idempotency.ParseIdentity(s)
	if err != nil {
		t.Fatal(err)
	}
	if id.String() != s {
		t.Errorf("%q came back as %q", s, id)
	}
	return id
}

func TestParseIdentity(t *testing.T) {
	for s, stored := range map[string]bool{
		"none": false, "content": true, "field:id": false, "field:order.id": false, "header:event-id": true, "header:a:b": true,
	} {
		if id := identity(t, s); id.Stored() != stored {
			t.Errorf("%s: stored %v", s, id.Stored())
		}
	}
	for _, s := range []string{"", "field", "field:", "field:a.", "field:.a", "field:a..b", "header:", "header", "Content", "content:x", "offset"} {
		if _, err := idempotency.ParseIdentity(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

// TestFingerprintsStayWhatTheyAre: fingerprints must never change, because they are computed again from the rows of
// existing tables and must equal the stored ones.
func TestFingerprintsStayWhatTheyAre(t *testing.T) {
	field := func(s string) *idempotency.Hasher { return idempotency.NewHasher(identity(t, s)) }
	for _, c := range []struct {
		name string
		got  idempotency.Fingerprint
		want string
	}{
		{"text", field("field:event_id").Text([]byte("e-1")), "50af728ea2c1d8da56fefcf3a64b9473"},
		{"integer", field("field:event_id").Integer(-7), "359b03c1ef3ccfd930dab2cfc57720ce"},
		{"header", field("header:event_id").Header([]byte("e-1")), "ddf5313abc38e87c7394450952a0c1b1"},
		{"content", field("content").Content([]byte("k"), []byte("v")), "9806d8b20ec268a98c4958adec41a8d5"},
	} {
		if c.got.String() != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
		if back, err := idempotency.ParseFingerprint(c.got.String()); err != nil || back != c.got {
			t.Errorf("%s came back as %s, %v", c.got, back, err)
		}
	}
	for _, s := range []string{"0", "zz000000000000000000000000000000", "000000000000000000000000000000001"} {
		if _, err := idempotency.ParseFingerprint(s); err == nil {
			t.Errorf("%q was read as a fingerprint", s)
		}
	}
}

// TestIdentitiesNeverMeet: all of these identities are different, although most contain the same bytes. So their
// fingerprints must be different.
func TestIdentitiesNeverMeet(t *testing.T) {
	seen := map[idempotency.Fingerprint]string{}
	add := func(what string, f idempotency.Fingerprint) {
		t.Helper()
		if f.IsZero() {
			t.Errorf("%s is no identity", what)
		}
		if other, ok := seen[f]; ok {
			t.Errorf("%s and %s are the same", what, other)
		}
		seen[f] = what
	}
	for _, s := range []string{"field:a", "field:b", "field:ab", "header:a", "header:b", "content"} {
		h := idempotency.NewHasher(identity(t, s))
		add(s+" text 1", h.Text([]byte("1")))
		add(s+" text b1", h.Text([]byte("b1")))
		add(s+" text word", h.Text([]byte{0, 0, 0, 0, 0, 0, 0, 1}))
		add(s+" integer 1", h.Integer(1))
		add(s+" integer -1", h.Integer(-1))
		add(s+" date 1", h.Date(1))
		add(s+" time 1", h.Time(1))
		add(s+" true", h.Boolean(true))
		add(s+" false", h.Boolean(false))
		add(s+" float 1", h.Float(1))
		add(s+" float tiny", h.Float(math.SmallestNonzeroFloat64))
		add(s+" header 1", h.Header([]byte("1")))
		add(s+" null key", h.Content(nil, []byte("1")))
		add(s+" empty key", h.Content([]byte{}, []byte("1")))
		add(s+" key 1", h.Content([]byte("1"), []byte{}))
		add(s+" key 1, value 1", h.Content([]byte("1"), []byte("1")))
		add(s+" key 11", h.Content([]byte("11"), nil))
	}
}

func TestWhatIsNoIdentity(t *testing.T) {
	h := idempotency.NewHasher(identity(t, "field:a"))
	for what, f := range map[string]idempotency.Fingerprint{
		"empty text": h.Text(nil), "empty header": h.Header([]byte{}), "null header": h.Header(nil),
	} {
		if !f.IsZero() || f.String() != "" {
			t.Errorf("%s has the fingerprint %q", what, f)
		}
	}
	if h.Float(0) != h.Float(math.Copysign(0, -1)) || h.Float(math.NaN()) != h.Float(math.Float64frombits(0x7ff8000000000123)) {
		t.Error("equal numbers have different fingerprints")
	}
}

func TestHashersRemainTheSame(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a := idempotency.NewHasher(identity(t, "content"))
		k, v := rapid.SliceOf(rapid.Byte()).Draw(r, "key"), rapid.SliceOf(rapid.Byte()).Draw(r, "value")
		a.Content(rapid.SliceOf(rapid.Byte()).Draw(r, "before"), nil)
		if got, want := a.Content(k, v), idempotency.NewHasher(identity(t, "content")).Content(k, v); got != want {
			r.Fatalf("after another record %s, alone %s", got, want)
		}
	})
}
