package origin

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/idempotency"
)

func keys(tb testing.TB, lines ...string) Keys {
	tb.Helper()
	k, err := ParseKeys([]byte(strings.Join(lines, "\n")))
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

var (
	oldKey = strings.Repeat("a", MinKeyBytes)
	newKey = strings.Repeat("b", 64)
)

func sample() Origin {
	p := idempotency.Partition{Cluster: "c 1", Topic: "orders", TopicID: idempotency.TopicID{1, 2}, ID: 3}
	return Origin{Pipeline: "pi:pe", TableID: "0b9c-ü", Record: idempotency.Coordinates{Partition: p, Offset: 0}, Intent: 12, Number: 1, Replays: 1}
}

// TestKeys_Verify: a header is genuine only for its own record, and under any of the keys.
func TestKeys_Verify(t *testing.T) {
	o, key, value := sample(), []byte("k"), []byte("v")
	header := keys(t, oldKey).Sign(o, key, value)
	for name, c := range map[string]struct {
		keys               Keys
		header, key, value []byte
		forged             bool
	}{
		"its own":               {keys(t, oldKey), header, key, value, false},
		"old key while rotated": {keys(t, newKey, oldKey), header, key, value, false},
		"key removed":           {keys(t, newKey), header, key, value, true},
		"no keys":               {Keys{}, header, key, value, true},
		"other value":           {keys(t, oldKey), header, key, []byte("w"), true},
		"other key":             {keys(t, oldKey), header, []byte("l"), value, true},
		"null key":              {keys(t, oldKey), header, nil, value, true},
		"moved boundary":        {keys(t, oldKey), header, []byte("kv"), []byte{}, true},
		"empty":                 {keys(t, oldKey), nil, key, value, true},
		"no MAC":                {keys(t, oldKey), header[:bytes.LastIndexByte(header, ' ')], key, value, true},
		"cut MAC":               {keys(t, oldKey), header[:len(header)-1], key, value, true},
		"longer MAC":            {keys(t, oldKey), append(bytes.Clone(header), 'A'), key, value, true},
		"other number":          {keys(t, oldKey), bytes.Replace(header, []byte(" 12 1 1 "), []byte(" 12 2 1 "), 1), key, value, true},
		"other pipeline":        {keys(t, oldKey), bytes.Replace(header, []byte("pi%3Ape"), []byte("pipe"), 1), key, value, true},
		"too long":              {keys(t, oldKey), append(bytes.Repeat([]byte("x"), maxHeader), header...), key, value, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.keys.Verify(c.header, c.key, c.value)
			switch {
			case c.forged && !errors.Is(err, ErrForged):
				t.Errorf("%+v, %v", got, err)
			case !c.forged && (err != nil || got != o):
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	if header := (Keys{}).Sign(o, key, value); header != nil {
		t.Errorf("signed without a key: %s", header)
	}
}

// TestKeys_VerifySignedNonsense: a text that Sign never writes is refused, even with a right MAC.
func TestKeys_VerifySignedNonsense(t *testing.T) {
	k, good := keys(t, oldKey), string(sample().text())
	for _, text := range []string{
		"", "v2" + good[2:], good + " 1", strings.Replace(good, " 12 ", " 012 ", 1), strings.Replace(good, " 12 ", " +12 ", 1),
		strings.Replace(good, " 0 12 ", " -1 12 ", 1), strings.Replace(good, " 12 1 1", " 0 1 1", 1), strings.Replace(good, " 12 1 1", " 12 0 1", 1),
		strings.Replace(good, " 12 1 1", " 12 1 0", 1), strings.Replace(good, " 12 1 1", " 12 65536 1", 1),
		strings.Replace(good, " 12 1 1", " 140737488355328 1 1", 1), strings.Replace(good, ":3 ", ":table ", 1),
		strings.Replace(good, "c+1", "c%201", 1),
	} {
		header := []byte(text + " " + string(macText(k, text)))
		if o, err := k.Verify(header, nil, nil); !errors.Is(err, ErrForged) {
			t.Errorf("%q: %+v, %v", text, o, err)
		}
	}
	header := []byte(good + " " + string(macText(k, good)))
	if o, err := k.Verify(header, nil, nil); err != nil || o != sample() {
		t.Errorf("%+v, %v", o, err)
	}
}

// macText returns the MAC of a text for a record without key and value, as Sign appends it.
func macText(k Keys, text string) []byte {
	return base64.RawURLEncoding.AppendEncode(nil, mac(k.all[0], []byte(text), nil, nil))
}

func TestParseKeys(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "there is no key",
		"\n \n":                                "there is no key",
		oldKey[1:]:                             "key 1 has 31 bytes",
		oldKey + "\nshort":                     "key 2 has 5 bytes",
		strings.Repeat(oldKey+"\n", MaxKeys+1): "more than 8 keys",
	} {
		if _, err := ParseKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	k := keys(t, oldKey+"\r", "", newKey, "")
	if k.Len() != 2 || !k.Equal(keys(t, oldKey, newKey)) || k.Equal(keys(t, newKey, oldKey)) || k.Equal(keys(t, oldKey)) {
		t.Errorf("%d keys", k.Len())
	}
}

func TestTxn(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		intent, n := rapid.Int64Range(0, MaxIntent).Draw(r, "intent"), rapid.Int64Range(0, MaxNumber).Draw(r, "n")
		version := Txn(intent, n)
		if gotIntent, got := Accepted(version); gotIntent != intent || got != n || version < 0 {
			r.Fatalf("%d and %d became %d, which is %d and %d", intent, n, version, gotIntent, got)
		}
	})
	if intent, n := Accepted(-1); intent != 0 || n != 0 {
		t.Errorf("no txn: %d, %d", intent, n)
	}
}

// TestKeys_RoundTrip: each origin comes back as it was signed, and fails with another record.
func TestKeys_RoundTrip(t *testing.T) {
	k := keys(t, newKey, oldKey)
	rapid.Check(t, func(r *rapid.T) {
		o := Origin{
			Pipeline: rapid.StringN(1, 40, -1).Draw(r, "pipeline"), TableID: rapid.StringN(1, 40, -1).Draw(r, "table"),
			Record: idempotency.Coordinates{Partition: idempotency.Partition{
				Cluster: rapid.StringN(0, 20, -1).Draw(r, "cluster"), Topic: rapid.StringN(1, 40, -1).Draw(r, "topic"),
				TopicID: idempotency.TopicID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "id")), ID: rapid.Int32Min(0).Draw(r, "partition"),
			}, Offset: rapid.Int64Min(0).Draw(r, "offset")},
			Intent: rapid.Int64Range(1, MaxIntent).Draw(r, "intent"), Number: rapid.Int64Range(1, MaxNumber).Draw(r, "number"), Replays: rapid.Int64Range(1, 9).Draw(r, "replays"),
		}
		key, value := rapid.SliceOf(rapid.Byte()).Draw(r, "key"), rapid.SliceOf(rapid.Byte()).Draw(r, "value")
		header := k.Sign(o, key, value)
		if got, err := k.Verify(header, key, value); err != nil || got != o {
			r.Fatalf("%+v became %+v, %v", o, got, err)
		}
		if _, err := k.Verify(header, append(key, 0), value); !errors.Is(err, ErrForged) {
			r.Fatalf("another key: %v", err)
		}
	})
}

// FuzzParse: what parse accepts is what Sign would write.
func FuzzParse(f *testing.F) {
	f.Add(string(sample().text()))
	f.Add("v1 kd1:p:c:t:-:0 x 1 2 3 4")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parse(text)
		if err == nil && string(o.text()) != text {
			t.Errorf("%q was read as %q", text, o.text())
		}
		if _, err := keys(t, oldKey).Verify([]byte(text), nil, nil); err == nil {
			t.Error("a header without a right MAC is genuine")
		}
	})
}
