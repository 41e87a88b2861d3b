package opslog_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

func once(key, request string) opslog.Once {
	return opslog.Once{Key: strings.Repeat(key, 64), Request: strings.Repeat(request, 64)}
}

// TestAppend_Once: for a day, only one operation with the same key is appended, also if another process tries. After
// that day the key can be used again.
func TestAppend_Once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMem()
		op := pause("test", opslog.Topic("a"))
		op.Once = once("a", "b")
		first := add(t, open(store), op)
		again := func(l *opslog.Log, o opslog.Once, same bool) {
			t.Helper()
			op.Once = o
			_, err := l.Append(t.Context(), op, nil)
			repeated, ok := errors.AsType[*opslog.RepeatedError](err)
			if !ok || repeated.Seq != first.Seq || repeated.Same != same {
				t.Errorf("%v", err)
			}
		}
		late := open(store)
		again(late, once("a", "b"), true)
		again(late, once("a", "c"), false)
		e, err := late.Entry(t.Context(), first.Seq)
		if err != nil || e.ID != first.ID || e.Hash() != first.Hash() || *e.Once != once("a", "b") {
			t.Errorf("%+v, %v", e, err)
		}
		op.Once = once("d", "b")
		add(t, late, op)
		time.Sleep(opslog.KeyLife - time.Second)
		again(late, once("a", "b"), true)
		time.Sleep(time.Second)
		op.Once = once("a", "c")
		if e := add(t, late, op); e.Seq != 3 {
			t.Errorf("%+v", e)
		}
		if r := verify(t, store, opslog.Head{}); r.Head.Seq != 3 {
			t.Errorf("%+v", r)
		}
	})
}

func TestAppend_OnceBad(t *testing.T) {
	op := pause("test", opslog.Topic("a"))
	op.Once = opslog.Once{Key: "plain text", Request: strings.Repeat("a", 64)}
	if _, err := open(objstore.NewMem()).Append(t.Context(), op, nil); err == nil {
		t.Error("a key that is no hash was accepted")
	}
}

// TestEntry_OnceToOlderVersions: a version of Sluice that does not know the field once reads all other fields of the
// entry.
func TestEntry_OnceToOlderVersions(t *testing.T) {
	store := objstore.NewMem()
	op := pause("test", opslog.Topic("a"))
	op.Once = once("a", "b")
	e := add(t, open(store), op)
	var older struct {
		Seq      int64           `json:"seq"`
		Prev     string          `json:"prev"`
		Operator string          `json:"operator"`
		Kind     opslog.Kind     `json:"kind"`
		Body     json.RawMessage `json:"body"`
		Sum      string          `json:"sum"`
	}
	object := get(t, store, key(1))
	if err := json.Unmarshal(object, &older); err != nil || older.Seq != e.Seq || older.Kind != opslog.KindPause || older.Operator != "ada" || older.Sum == "" {
		t.Errorf("%+v, %v", older, err)
	}
	plain := pause("test", opslog.Topic("b"))
	if add(t, open(store), plain); strings.Contains(string(get(t, store, key(2))), "once") {
		t.Error("an entry without a key has the field")
	}
}
