package deltalog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
)

const (
	nameCommitInfo = "commitInfo"
	nameProtocol   = "protocol"
	nameMetadata   = "metaData"
	nameTxn        = "txn"
	nameAdd        = "add"
	nameRemove     = "remove"
)

// ErrCorrupt means that a file of the log violates the protocol. A retry does not help.
var ErrCorrupt = errors.New("the log is corrupt")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// parse yields the actions of the wanted kinds in a commit. Unknown fields and actions are skipped. An error is the
// last result: [ErrCorrupt] for malformed content, otherwise that of r; a line that r returned only in part is never
// parsed.
func parse(r io.Reader, want Kinds, keep *keeper) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		lines := bufio.NewReaderSize(r, 16<<10)
		for n := 1; ; n++ {
			text, end := readLine(lines)
			if end != nil && !errors.Is(end, io.EOF) {
				yield(nil, end)
				return
			}
			if text = bytes.TrimSpace(text); len(text) > 0 {
				actions, err := keep.line(text, want)
				if err != nil {
					yield(nil, fmt.Errorf("line %d: %w", n, err))
					return
				}
				for _, a := range actions {
					if !yield(a, nil) {
						return
					}
				}
			}
			if end != nil {
				return
			}
		}
	}
}

// readLine returns the next line, valid until the next call, and io.EOF with the last one.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		if line, err = r.ReadSlice('\n'); len(long)+len(line) > maxLine {
			return nil, corrupt("a line of more than %d bytes", int64(maxLine))
		}
		long = append(long, line...)
	}
	return long, err
}

var parsers = [...]struct {
	name  string
	kind  Kinds
	parse func(json.RawMessage) (Action, error)
}{
	{nameCommitInfo, KindCommitInfo, parseCommitInfo},
	{nameProtocol, KindProtocol, parseProtocol},
	{nameMetadata, KindMetadata, parseMetadata},
	{nameTxn, KindTxn, parseTxn},
	{nameAdd, KindAdd, parseAdd},
	{nameRemove, KindRemove, parseRemove},
}

// parseLine returns the actions of one line. The protocol allows one per line; a writer may write the other names with
// the value null.
func parseLine(text []byte, want Kinds) ([]Action, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return nil, corrupt("not a JSON object")
	}
	var found []Action
	for _, p := range parsers {
		body, ok := fields[p.name]
		if !ok || want&p.kind == 0 || isNull(body) {
			continue
		}
		a, err := p.parse(body)
		if err != nil {
			return nil, corrupt("%s: %v", p.name, err)
		}
		found = append(found, a)
	}
	return found, nil
}

func isNull(b json.RawMessage) bool { return len(b) == 0 || string(b) == "null" }

// parseCommitInfo reads the fields of a commitInfo whose form is known. The commitInfo of other writers may have any
// form and never makes a log corrupt.
func parseCommitInfo(body json.RawMessage) (Action, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, errors.New("not an object")
	}
	var c CommitInfo
	take := func(name string, into any) bool {
		return !isNull(fields[name]) && json.Unmarshal(fields[name], into) == nil
	}
	take("timestamp", &c.Timestamp)
	take("operation", &c.Operation)
	take("isolationLevel", &c.IsolationLevel)
	take("isBlindAppend", &c.IsBlindAppend)
	take("engineInfo", &c.EngineInfo)
	take("txnId", &c.TxnID)
	var v int64
	if take("readVersion", &v) {
		c.ReadVersion = &v
	}
	c.OperationParameters, c.OperationMetrics = texts(fields["operationParameters"]), texts(fields["operationMetrics"])
	if s := fields["sluice"]; !isNull(s) {
		c.Sluice = s
	}
	return c, nil
}

// texts reads an object of strings. Values of other types are returned as their JSON.
func texts(body json.RawMessage) map[string]string {
	var fields map[string]json.RawMessage
	if isNull(body) || json.Unmarshal(body, &fields) != nil {
		return nil
	}
	m := make(map[string]string, len(fields))
	for k, v := range fields {
		var s string
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		m[k] = s
	}
	return m
}

func parseProtocol(body json.RawMessage) (Action, error) {
	var p Protocol
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	return p, p.check()
}

func (p Protocol) check() error {
	if p.MinReaderVersion < 1 || p.MinWriterVersion < 1 {
		return fmt.Errorf("versions (%d, %d)", p.MinReaderVersion, p.MinWriterVersion)
	}
	return nil
}

func parseMetadata(body json.RawMessage) (Action, error) {
	var m Metadata
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	return m, m.check()
}

func (m Metadata) check() error {
	switch {
	case m.ID == "":
		return errors.New("no id")
	case m.SchemaString == "":
		return errors.New("no schemaString")
	}
	return nil
}

func parseTxn(body json.RawMessage) (Action, error) {
	var t struct {
		AppID       *string `json:"appId"`
		Version     *int64  `json:"version"`
		LastUpdated *int64  `json:"lastUpdated"`
	}
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, err
	}
	if t.AppID == nil || t.Version == nil {
		return nil, errors.New("no appId or no version")
	}
	return Txn{AppID: *t.AppID, Version: *t.Version, LastUpdated: t.LastUpdated}, nil
}

func parseAdd(body json.RawMessage) (Action, error) {
	var a Add
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, err
	}
	if isNull(a.DeletionVector) {
		a.DeletionVector = nil
	}
	if a.Path == "" {
		return nil, errors.New("no path")
	}
	return a, nil
}

func parseRemove(body json.RawMessage) (Action, error) {
	var r Remove
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	if r.Path == "" {
		return nil, errors.New("no path")
	}
	return r, nil
}
