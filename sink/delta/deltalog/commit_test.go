package deltalog_test

import (
	"errors"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"sluice/sink/delta/deltalog"
)

func collect[T any](t *testing.T, seq iter.Seq2[T, error]) []T {
	t.Helper()
	var all []T
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// TestEncodeShapes: encoded actions are in the order of lines that Encode promises, without HTML escapes and null
// values, and each line ends with one newline.
func TestEncodeShapes(t *testing.T) {
	got, err := deltalog.Encode([]deltalog.Action{
		deltalog.Add{Path: deltalog.URI("p=a%2Fb c/x.parquet"), Size: 3, ModificationTime: 4, DataChange: true, Stats: `{"numRecords":1}`},
		deltalog.Remove{Path: "old.parquet", DeletionTimestamp: 5, DataChange: true, ExtendedFileMetadata: true, Size: new(int64(9))},
		deltalog.Txn{AppID: "kd1:p:c:t:-:0", Version: 42, LastUpdated: new(int64(7))},
		deltalog.Metadata{ID: "id", SchemaString: `{"type":"struct"}`, Format: deltalog.Format{Provider: "parquet"}, CreatedTime: new(int64(6))},
		deltalog.Protocol{MinReaderVersion: 1, MinWriterVersion: 2},
		deltalog.CommitInfo{
			Timestamp: 8, Operation: "STREAMING UPDATE", OperationParameters: map[string]string{"outputMode": "Append"},
			ReadVersion: new(int64(0)), IsolationLevel: "Serializable", IsBlindAppend: true,
			OperationMetrics: map[string]string{"numAddedFiles": "1"}, EngineInfo: "sluice/<&>", TxnID: "u-1",
			Sluice: []byte(`{"ranges":[]}`),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		`{"commitInfo":{"timestamp":8,"operation":"STREAMING UPDATE","operationParameters":{"outputMode":"Append"},"readVersion":0,"isolationLevel":"Serializable","isBlindAppend":true,"operationMetrics":{"numAddedFiles":"1"},"engineInfo":"sluice/<&>","txnId":"u-1","sluice":{"ranges":[]}}}`,
		`{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}`,
		`{"metaData":{"id":"id","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\"}","partitionColumns":[],"configuration":{},"createdTime":6}}`,
		`{"txn":{"appId":"kd1:p:c:t:-:0","version":42,"lastUpdated":7}}`,
		`{"add":{"path":"p=a%252Fb%20c/x.parquet","partitionValues":{},"size":3,"modificationTime":4,"dataChange":true,"stats":"{\"numRecords\":1}"}}`,
		`{"remove":{"path":"old.parquet","deletionTimestamp":5,"dataChange":true,"extendedFileMetadata":true,"size":9}}`,
		``,
	}, "\n")
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestEncodeRefusesTwoActionsForOneThing(t *testing.T) {
	add := deltalog.Add{Path: "a%20b"}
	for name, actions := range map[string][]deltalog.Action{
		"txn":      {deltalog.Txn{AppID: "a"}, deltalog.Txn{AppID: "a", Version: 1}},
		"protocol": {deltalog.Protocol{}, deltalog.Protocol{}},
		"metaData": {deltalog.Metadata{}, deltalog.Metadata{}},
		"add":      {add, deltalog.Add{Path: "a b"}},
	} {
		if _, err := deltalog.Encode(actions); err == nil {
			t.Errorf("%s: two of them were encoded", name)
		}
	}
	if _, err := deltalog.Encode([]deltalog.Action{add, deltalog.Remove{Path: "a b"}}); err != nil {
		t.Errorf("add and remove of one path: %v", err)
	}
}

// TestParseForeign: Parse reads commits of other programs, with unknown actions and fields, explicit nulls and any
// commitInfo.
func TestParseForeign(t *testing.T) {
	text := strings.Join([]string{
		`{"commitInfo":{"timestamp":1,"operation":"WRITE","operationParameters":{"mode":"Append","partitionBy":[],"n":7},"notebook":{"x":1},"readVersion":null,"isBlindAppend":"yes","txnId":"f"}}`,
		`{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]},"add":null}`,
		`   `,
		`{"domainMetadata":{"domain":"delta.clustering","configuration":"{}","removed":false}}`,
		`{"metaData":{"id":"m","format":{"provider":"parquet"},"schemaString":"{}","partitionColumns":["d"],"configuration":{"delta.appendOnly":"true"},"createdTime":null,"futureField":[1]}}`,
		`{"add":{"path":"x","partitionValues":{"d":null,"e":"1"},"size":1,"modificationTime":2,"dataChange":false,"stats":null,"tags":{"INSERTION_TIME":"9"},"deletionVector":{"storageType":"u"},"baseRowId":4}}`,
		`{"remove":{"path":"y","dataChange":true,"deletionVector":null}}`,
		`{"cdc":{"path":"z"}}`,
		`{"txn":{"appId":"","version":-3}}`,
	}, "\n") // no newline at the end
	want := []deltalog.Action{
		deltalog.CommitInfo{Timestamp: 1, Operation: "WRITE", OperationParameters: map[string]string{"mode": "Append", "partitionBy": "[]", "n": "7"}, TxnID: "f"},
		deltalog.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"deletionVectors"}, WriterFeatures: []string{"deletionVectors"}},
		deltalog.Metadata{ID: "m", Format: deltalog.Format{Provider: "parquet"}, SchemaString: "{}", PartitionColumns: []string{"d"}, Configuration: map[string]string{"delta.appendOnly": "true"}},
		deltalog.Add{Path: "x", PartitionValues: map[string]*string{"d": nil, "e": new("1")}, Size: 1, ModificationTime: 2, Tags: map[string]*string{"INSERTION_TIME": new("9")}, DeletionVector: []byte(`{"storageType":"u"}`)},
		deltalog.Remove{Path: "y", DataChange: true},
		deltalog.Txn{AppID: "", Version: -3},
	}
	got := collect(t, deltalog.Parse(strings.NewReader(text), deltalog.All))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := collect(t, deltalog.Parse(strings.NewReader(text), deltalog.KindTxn)); len(got) != 1 {
		t.Errorf("txn only: %v", got)
	}
}

func TestParseCorrupt(t *testing.T) {
	for name, text := range map[string]string{
		"cut off":            `{"txn":{"appId":"a","ver`,
		"not an object":      `[1]`,
		"null":               `null`,
		"two values":         `{"txn":null} {"txn":null}`,
		"txn without appId":  `{"txn":{"version":1}}`,
		"txn version text":   `{"txn":{"appId":"a","version":"1"}}`,
		"txn version double": `{"txn":{"appId":"a","version":1.5}}`,
		"protocol zero":      `{"protocol":{}}`,
		"metaData no id":     `{"metaData":{"schemaString":"{}"}}`,
		"add no path":        `{"add":{"size":1}}`,
		"remove no path":     `{"remove":{}}`,
		"commitInfo text":    `{"commitInfo":"x"}`,
	} {
		var err error
		for _, err = range deltalog.Parse(strings.NewReader(text+"\n"), deltalog.All) {
		}
		if !errors.Is(err, deltalog.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParseReadError: if the reader fails, at any byte, the error is not ErrCorrupt. Otherwise a writer that reads its
// own commit back would think that another program wrote it.
func TestParseReadError(t *testing.T) {
	text := `{"txn":{"appId":"a","version":1}}` + "\n" + `{"commitInfo":{"txnId":"` + strings.Repeat("x", 40_000) + `"}}` + "\n"
	for _, n := range []int{0, 1, 33, 34, 35, 60, 16 << 10, len(text) - 1, len(text)} {
		r := io.MultiReader(strings.NewReader(text[:n]), iotest.ErrReader(io.ErrUnexpectedEOF))
		var err error
		for _, err = range deltalog.Parse(r, deltalog.All) {
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, deltalog.ErrCorrupt) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	if got := collect(t, deltalog.Parse(strings.NewReader(text), deltalog.All)); len(got) != 2 {
		t.Errorf("%d actions", len(got))
	}
}

func TestPaths(t *testing.T) {
	for _, key := range []string{
		"part-0.parquet", "p=a%2Fb c/x.parquet", "a#b?c+d&e;f'g\"h.parquet", "é/😀.parquet", "a\nb", "%", "100%/x", `back\slash`,
	} {
		uri := deltalog.URI(key)
		if got := deltalog.Key(uri); got != key {
			t.Errorf("%q became %q and then %q", key, uri, got)
		}
		if strings.ContainsAny(uri, " #?\n\"") {
			t.Errorf("%q is no URI", uri)
		}
	}
	if got := deltalog.Key("100%"); got != "100%" {
		t.Errorf("a path that is no URI became %q", got)
	}
	if got, want := deltalog.CommitKey(7), "_delta_log/00000000000000000007.json"; got != want {
		t.Error(got)
	}
}
