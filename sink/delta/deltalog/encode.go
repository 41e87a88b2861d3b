package deltalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Encode renders a commit: one action per line, commitInfo first, then protocol, metaData, txn, and the files in the
// given order. A commit with two actions for one thing is an error, because the protocol forbids it. So is a commit
// beyond the bounds of this package, because no member could read the table any more.
func Encode(actions []Action) ([]byte, error) {
	if err := unique(actions); err != nil {
		return nil, err
	}
	ordered := slices.Clone(actions)
	slices.SortStableFunc(ordered, func(a, b Action) int { return cmp.Compare(rank(a), rank(b)) })
	var buf bytes.Buffer
	var heads int64
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for _, a := range ordered {
		from := buf.Len()
		if err := enc.Encode(line(a)); err != nil {
			return nil, fmt.Errorf("encode a commit: %w", err)
		}
		text := buf.Bytes()[from:]
		if a.kind()&(KindAdd|KindRemove) == 0 {
			heads += cost(text)
		}
		if len(text) > maxLine || cost(text) > maxParsed || heads > maxHeads {
			return nil, fmt.Errorf("encode a commit: a %T or the positions of the commit are larger than this version reads back", a)
		}
	}
	return buf.Bytes(), nil
}

// rank is the key by which the actions of a commit are sorted. Adds and removes come last and have the same rank, so
// that a stable sort keeps their order.
func rank(a Action) Kinds { return min(a.kind(), KindAdd) }

// line returns the value whose JSON is the line of an action: an object whose only key is the name of the action. A
// list or map that the protocol requires is empty instead of null.
func line(a Action) any {
	switch a := a.(type) {
	case CommitInfo:
		if a.OperationParameters == nil {
			a.OperationParameters = map[string]string{}
		}
		return map[string]any{nameCommitInfo: a}
	case Protocol:
		return map[string]any{nameProtocol: a}
	case Metadata:
		if a.Format.Options == nil {
			a.Format.Options = map[string]string{}
		}
		if a.PartitionColumns == nil {
			a.PartitionColumns = []string{}
		}
		if a.Configuration == nil {
			a.Configuration = map[string]string{}
		}
		return map[string]any{nameMetadata: a}
	case Txn:
		return map[string]any{nameTxn: a}
	case Add:
		if a.PartitionValues == nil {
			a.PartitionValues = map[string]*string{}
		}
		return map[string]any{nameAdd: a}
	case Remove:
		return map[string]any{nameRemove: a}
	}
	panic(fmt.Sprintf("deltalog: an action of type %T", a)) // cannot happen: no other types implement Action
}

// unique enforces the protocol's "at most one": one protocol, metaData and commitInfo, one txn per appId, one add and
// one remove per path.
func unique(actions []Action) error {
	type thing struct {
		kind Kinds
		name string
	}
	seen := make(map[thing]bool, len(actions))
	for _, a := range actions {
		t := thing{kind: a.kind()}
		switch a := a.(type) {
		case Txn:
			t.name = a.AppID
		case Add:
			t.name = Key(a.Path)
		case Remove:
			t.name = Key(a.Path)
		}
		if seen[t] {
			return fmt.Errorf("a commit with two %T actions for %q", a, t.name)
		}
		seen[t] = true
	}
	return nil
}
