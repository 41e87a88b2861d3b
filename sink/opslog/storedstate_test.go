package opslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/idempotency"
	"sluice/idempotency/offsets"
)

// drawOperation returns an operation that may change what the operations before seq did.
func drawOperation(t *rapid.T, seq int64) Body {
	topic := rapid.SampledFrom([]string{"orders", "audit", "a.b"})
	targets := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Target {
		return rapid.SampledFrom([]Target{All(), Topic(topic.Draw(t, "topic")), {topic.Draw(t, "topic"), rapid.Int32Range(0, 2).Draw(t, "partition")}}).Draw(t, "target")
	}), 1, 3)
	letters := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Letters {
		at := rapid.SliceOfNDistinct(rapid.Int64Range(0, 12), 1, 5, rapid.ID).Draw(t, "offsets")
		slices.Sort(at)
		p := idempotency.Partition{
			Cluster: rapid.SampledFrom([]string{"", "c"}).Draw(t, "cluster"), Topic: topic.Draw(t, "topic"),
			TopicID: idempotency.TopicID{rapid.Byte().Draw(t, "id") % 2}, ID: rapid.Int32Range(0, 1).Draw(t, "partition"),
		}
		return LettersOf(p, offsets.Of(at...))
	}), 1, 3)
	moves := []Move{{Topic: topic.Draw(t, "topic"), From: -1, To: 5}, {Topic: topic.Draw(t, "topic"), From: 7, To: 5}}
	earlier := rapid.Int64Range(1, max(seq-1, 1))
	outcome := rapid.SampledFrom([]Outcome{Committed, Committed, Conflict})
	switch rapid.IntRange(0, 15).Draw(t, "kind") {
	case 0:
		return Pause{targets.Draw(t, "targets")}
	case 1:
		return Resume{targets.Draw(t, "targets")}
	case 2:
		return OffsetsIntent{"offsets set", "orders", moves}
	case 3:
		return OffsetsDone{Intent: earlier.Draw(t, "intent"), Command: "offsets set", Table: "orders", Moves: moves, Outcome: outcome.Draw(t, "outcome")}
	case 4:
		until := time.Unix(rapid.Int64Range(1, 1<<33).Draw(t, "until"), 5).In(time.FixedZone("", 3600))
		return FloodAllow{topic.Draw(t, "topic"), until}
	case 5:
		return Forget{topic.Draw(t, "topic"), "orders", []Below{{rapid.SampledFrom([]string{"", "AAAA"}).Draw(t, "id"), rapid.Int32Range(0, 2).Draw(t, "partition"), rapid.Int64Range(0, 9).Draw(t, "offset")}}}
	case 6:
		return ForgetMembers{Members: []string{"m"}}
	case 7:
		return Recheck{targets.Draw(t, "targets")}
	case 8:
		return Flush{[]Target{Topic(topic.Draw(t, "topic"))}}
	case 9:
		return Discard{letters.Draw(t, "letters")}
	case 10:
		return Acknowledge{letters.Draw(t, "letters")}
	case 11:
		return Reopen{letters.Draw(t, "letters")}
	case 12:
		return ReplayFailed{"orders", letters.Draw(t, "letters")}
	case 13:
		if rapid.Bool().Draw(t, "withdraws") {
			return ReplayIntent{Table: "orders", TableID: "id", After: 3, Withdraws: earlier.Draw(t, "of"), Accepted: letters.Draw(t, "accepted")}
		}
		return ReplayIntent{
			Table: "orders", TableID: "id", Letters: letters.Draw(t, "letters"), Mode: rapid.SampledFrom([]ReplayMode{Direct, ByTopic}).Draw(t, "mode"),
			Edited: []EditedValue{{"orders", 1, 2, "a", "b"}},
		}
	case 14:
		return ReplayClosed{earlier.Draw(t, "intent"), "orders"}
	}
	return ReplayDone{earlier.Draw(t, "intent"), "orders", outcome.Draw(t, "outcome"), -1, ""}
}

// TestStoredState: a state that was stored in the middle of any operations and read back continues like the state of all
// operations. The comparison covers each field of a state, so that a new field must be stored, too.
func TestStoredState(t *testing.T) {
	replays := []Body{ // which operations in a random order seldom complete
		ReplayIntent{Table: "orders", TableID: "id", Mode: ByTopic, Letters: lettersAt(1, 2)},
		ReplayDone{1, "orders", Committed, 7, ""},
		ReplayClosed{1, "orders"},
		ReplayIntent{Table: "orders", TableID: "id", Mode: ByTopic, Letters: lettersAt(3)},
		ReplayDone{4, "orders", Committed, 8, ""},
	}
	rapid.Check(t, func(t *rapid.T) {
		all, restored := &State{}, &State{}
		n := rapid.Int64Range(8, 60).Draw(t, "operations")
		stored := rapid.Int64Range(0, n-1).Draw(t, "stored after")
		for seq := range n {
			if seq == stored {
				data, err := encodeState(all)
				if err != nil {
					t.Fatal(err)
				}
				if restored, err = decodeState(data); err != nil {
					t.Fatal(err)
				}
				restored.head = all.head
			}
			var body Body
			if seq < int64(len(replays)) {
				body = replays[seq]
			} else {
				body = drawOperation(t, seq+1)
			}
			e := entry(t, seq+1, body)
			if key := rapid.IntRange(0, 9).Draw(t, "key"); key < 5 {
				e.Once = &Once{Key: hashOf([]byte{byte(key)}), Request: hashOf([]byte{byte(seq)})}
			}
			all, restored = all.after(e), restored.after(e)
		}
		diff := cmp.Diff(all, restored, cmp.AllowUnexported(State{}, letterBook{}, Moving{}, performed{}), cmpopts.EquateEmpty())
		if diff != "" {
			t.Fatalf("-all +restored\n%s", diff)
		}
		a, err := all.canonical()
		b, err2 := restored.canonical()
		if err != nil || err2 != nil || string(a) != string(b) {
			t.Fatalf("%s\n%s, %v %v", a, b, err, err2)
		}
	})
}

// TestSnapshotFormat_Kinds: a kind that this version adds changes what a state is, so the snapshots of earlier versions must not
// be used. If this test fails, increment snapshotFormat.
func TestSnapshotFormat_Kinds(t *testing.T) {
	of := map[int][]Kind{1: {
		KindPause, KindResume, KindOffsetsIntent, KindOffsetsDone, KindFloodAllow, KindForget, KindForgetMembers, KindRecheck,
		KindFlush, KindDiscard, KindAcknowledge, KindReopen, KindReplayIntent, KindReplayDone, KindReplayClosed, KindReplayFailed,
		KindSnapshot, KindSnapshotPart, KindSchemaIntent, KindSchemaDone,
	}}[snapshotFormat]
	known, err := constants("entry.go", "Kind")
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{}
	for _, k := range of {
		texts = append(texts, string(k))
	}
	slices.Sort(texts)
	slices.Sort(known)
	if diff := cmp.Diff(texts, known); diff != "" {
		t.Errorf("-kinds of format %d +kinds of this version\n%s", snapshotFormat, diff)
	}
}

func TestDecodeState_Malformed(t *testing.T) {
	good, err := encodeState(new(State).after(entry(t, 1, Discard{lettersAt(1)})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeState(good); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"nothing": nil, "cut": good[:len(good)-9], "plain JSON": []byte("{}"), "no JSON": zipped(t, "{"), "a wrong set": zipped(t, `{"letters":[{"topic_id":"-","discarded":"9,1"}]}`),
		"a wrong topic id": zipped(t, `{"letters":[{"topic_id":"x"}]}`),
	} {
		if _, err := decodeState(data); err == nil {
			t.Errorf("%s was read as a state", name)
		}
	}
}

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// constants returns the texts of the constants of a type in a file of this package.
func constants(file, of string) (texts []string, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typed, ok := spec.Type.(*ast.Ident); ok && typed.Name == of {
			for _, v := range spec.Values {
				if lit, ok := v.(*ast.BasicLit); ok {
					text, unquoted := strconv.Unquote(lit.Value)
					err = errors.Join(err, unquoted)
					texts = append(texts, text)
				}
			}
		}
		return true
	})
	return texts, err
}
