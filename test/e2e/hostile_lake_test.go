//go:build lab && linux

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

// put writes an object into the log of the attacked table.
func (a *attack) put(name string, body []byte) {
	a.t.Helper()
	if err := a.bucket.Overwrite(a.ctx, a.log.Table+"/_delta_log/"+name, body); err != nil {
		a.t.Fatal(err)
	}
}

// next returns the file name of the attacked table's next version.
func (a *attack) next() string {
	a.t.Helper()
	commits, err := a.log.Read(a.ctx)
	if err != nil {
		a.t.Fatal(err)
	}
	return fmt.Sprintf("%020d.json", len(commits))
}

// puts returns a function for the field lake of [hostile]. It writes one object into the attacked table's log: name, or
// the next version if name is "".
func puts(name string, body func() []byte) func(a *attack) []setting {
	return func(a *attack) []setting {
		as := name
		if as == "" {
			as = a.next()
		}
		a.put(as, body())
		return nil
	}
}

func nothing() []byte { return nil }

// streams returns a function for the field lake of [hostile]. It makes the store answer each GET of one object (name,
// or the next version if name is "") with text and then spaces, size bytes in all, for every requested range. The
// stored object has one byte, so a list does not show that size.
func streams(name, text string, size int64) func(a *attack) []setting {
	return func(a *attack) []setting {
		as := name
		if as == "" {
			as = a.next()
		}
		a.put(as, []byte(" "))
		p := a.proxy()
		is := func(r *http.Request) bool {
			return r.Method == http.MethodGet && path.Base(r.URL.Path) == as && strings.Contains(r.URL.Path, a.bad)
		}
		p.Break(is, 1<<16, lab.Reply(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(size))
			w.Header().Set("ETag", `"0"`)
			w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, text)
			n, _ := io.CopyN(w, spaces{}, size-int64(len(text))) // fails when the reader closes the connection
			a.sent.Add(n)
			a.requests.Add(1)
		}))
		return []setting{through(p)}
	}
}

// spaces is a reader of spaces that never ends.
type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// lines returns a function that returns the body of a log entry: the given lines, each with a line end.
func lines(all ...string) func() []byte {
	return func() []byte { return []byte(strings.Join(all, "\n") + "\n") }
}

// hostileTables are objects that other programs wrote into the log of a table or into the operations log.
func hostileTables() []hostile {
	const unsupported = "table_unsupported"
	return []hostile{
		{
			name: "lake-name", brief: true, input: "`_delta_log/09223372036854775807.json`", lake: puts("09223372036854775807.json", nothing),
			reason: unsupported, says: "names a version that no log reaches",
		},
		{
			name: "lake-name-checkpoint", input: "`_delta_log/09223372036854775807.checkpoint.parquet`", lake: puts("09223372036854775807.checkpoint.parquet", nothing),
			reason: unsupported, says: "names a version",
		},
		{
			name: "lake-hint", brief: true, input: "`_last_checkpoint` of 900 MB", lake: streams("_last_checkpoint", `{"version":1}`, 900<<20),
			during: func(a *attack) string {
				a.await("the hint was read", func() (bool, error) { return a.requests.Load() > 0, nil })
				n, sent := a.requests.Load(), a.sent.Load()
				if sent/n > 32<<20 { // sent counts also up to 32 MiB that are in buffers between the proxy and the member
					a.t.Errorf("%d requests for the hint took %d bytes", n, sent)
				}
				return fmt.Sprintf("passed over: %d requests took %d KiB with all buffers", n, sent>>10)
			},
		},
		{
			name: "lake-line", brief: true, input: "a commit of 900 MB in one line", lake: streams("", `{"commitInfo":{"x":"`, 900<<20),
			reason: unsupported, says: "a line of more than 8388608 bytes",
		},
		{
			name: "lake-lines", input: "a commit with a line of 64 MiB", lake: puts("", func() []byte { return lines(`{"commitInfo":{"x":"` + strings.Repeat("x", 64<<20) + `"}}`)() }),
			reason: unsupported, says: "a line of more than 8388608 bytes",
		},
		{
			name: "lake-commits", input: "16 commits of 24 MiB, each line within its bound", lake: func(a *attack) []setting {
				line := `{"commitInfo":{"operation":"WRITE","x":"` + strings.Repeat("x", 8<<20-100) + `"}}`
				for range 16 {
					a.put(a.next(), lines(line, line, line)())
				}
				return nil
			},
		},
		{
			name: "lake-fields", input: "a line with 1 000 000 fields", lake: puts("", func() []byte { return lines(`{` + strings.Repeat(`"a":1,`, 1<<20) + `"b":1}`)() }),
			reason: unsupported, says: "once it is parsed",
		},
		{
			name: "lake-positions", input: "a commit with 200 000 positions", lake: puts("", func() []byte {
				var all []string
				for i := range 200_000 {
					all = append(all, fmt.Sprintf(`{"txn":{"appId":"%d","version":1}}`, i))
				}
				return lines(all...)()
			}),
			reason: unsupported, says: "its positions and metadata take more than",
		},
		{
			name: "lake-schema-deep", input: "a schema nested 2 000 deep", lake: func(a *attack) []setting {
				text := `"long"`
				for range 2000 {
					text = `{"type":"array","containsNull":true,"elementType":` + text + `}`
				}
				return a.newSchema(`{"name":"a","nullable":true,"metadata":{},"type":` + text + `}`)
			},
			reason: unsupported, says: "types are nested deeper than 64",
		},
		{
			name: "lake-schema-wide", input: "a schema of 7 MB, 80 000 columns", lake: func(a *attack) []setting {
				var fields []string
				for i := range 80_000 {
					fields = append(fields, fmt.Sprintf(`{"name":"column-%d","type":"long","nullable":true,"metadata":{}}`, i))
				}
				return a.newSchema(fields...)
			},
			reason: unsupported, says: "its positions and metadata take more than",
		},
		{
			name: "lake-checkpoint", brief: true, input: "a checkpoint of 120 KB that becomes 1 GB, in large pages", lake: func(a *attack) []setting { return a.checkpoint(512<<20, 1024) },
			reason: unsupported, says: "uncompressed page size",
		},
		{
			name: "lake-checkpoint-pages", input: "a checkpoint of 120 KB that becomes 1 GB, in small pages", lake: func(a *attack) []setting { return a.checkpoint(1<<20, 1) },
			reason: unsupported, says: "a checkpoint is not used: ",
		},
		{
			name: "ops-name", input: "`_sluice/…/ops/09223372036854775807.json`", lake: func(a *attack) []setting {
				a.operation("09223372036854775807.json", nil)
				return nil
			},
			during: func(a *attack) string { return firstWith(a.wants(1, "audit", "verify"), "09223372036854775807") },
		},
		{
			name: "ops-entry", input: "an entry of the operations log of 64 MiB", during: func(a *attack) string {
				a.operation("00000000000000000000.json", bytes.Repeat([]byte("x"), 64<<20))
				a.operation("00000000000000000001.json", bytes.Repeat([]byte("x"), 64<<20))
				return ""
			},
			says: "1048576 bytes",
		},
		{
			name: "escapes", input: "terminal escapes in ids, properties, schema and positions of a table", lake: func(a *attack) []setting {
				const escape = `\u001b]0;owned\u0007\u001b[2J\u202e\u009b1m`
				a.put(a.next(), lines(
					`{"commitInfo":{"operation":"`+escape+`","sluice":{"reason":"`+escape+`"}}}`,
					`{"txn":{"appId":"x`+escape+`","version":7}}`,
				)())
				return nil
			},
			during: func(a *attack) string { return a.escaped() },
		},
	}
}

// firstWith returns the first line of a text that contains part.
func firstWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// operation writes an object into the operations log.
func (a *attack) operation(name string, body []byte) {
	a.t.Helper()
	if err := a.bucket.Overwrite(a.ctx, a.name+"/_sluice/"+a.name+"/ops/"+name, body); err != nil {
		a.t.Fatal(err)
	}
}

// newSchema commits metadata whose schema begins with additional fields, given as JSON. It returns nil, as checkpoint
// does: the field lake of [hostile] is a function that must return settings.
func (a *attack) newSchema(fields ...string) []setting {
	a.t.Helper()
	commits, err := a.log.Read(a.ctx)
	if err != nil {
		a.t.Fatal(err)
	}
	before := commits[slices.IndexFunc(commits, func(c tablelog.Commit) bool { return c.Schema != "" })]
	body, err := a.bucket.Get(a.ctx, fmt.Sprintf("%s/_delta_log/%020d.json", a.log.Table, before.Version))
	if err != nil {
		a.t.Fatal(err)
	}
	metadata := firstWith(string(body), `"metaData"`)
	const mark = `\"fields\":[`
	if !strings.Contains(metadata, mark) {
		a.t.Fatalf("no schema in %s", metadata)
	}
	all := strings.ReplaceAll(strings.Join(fields, ","), `"`, `\"`) + ","
	a.put(a.next(), lines(strings.Replace(metadata, mark, mark+all, 1))())
	return nil
}

// checkpoint puts the checkpoint file that bomb makes into the table's log, and deletes all earlier log entries, so
// that readers must read the file. It returns nil: see newSchema.
func (a *attack) checkpoint(page, batch int64) []setting {
	a.t.Helper()
	commits := a.next()
	version := strings.TrimSuffix(commits, ".json")
	a.put(commits, lines(`{"commitInfo":{"operation":"WRITE"}}`)())
	a.put(version+".checkpoint.parquet", a.bomb(page, batch))
	a.put("_last_checkpoint", fmt.Appendf(nil, `{"version":%s,"size":1}`, strings.TrimLeft(version, "0")))
	keys, err := a.bucket.List(a.ctx, a.log.Table+"/_delta_log/")
	if err != nil {
		a.t.Fatal(err)
	}
	for _, key := range keys {
		if strings.HasSuffix(key, ".json") && path.Base(key) < commits {
			if err := a.bucket.Delete(a.ctx, key); err != nil {
				a.t.Fatal(err)
			}
		}
	}
	return nil
}

// bomb returns a small checkpoint file that holds 1 GiB of application ids. page is the size in bytes at which its
// Parquet writer ends a data page. The writer checks the size after every batch values.
func (a *attack) bomb(page, batch int64) []byte {
	a.t.Helper()
	txn := arrow.StructOf(arrow.Field{Name: "appId", Type: arrow.BinaryTypes.String, Nullable: true}, arrow.Field{Name: "version", Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	schema := arrow.NewSchema([]arrow.Field{{Name: "txn", Type: txn, Nullable: true}}, nil)
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(schema, &out, parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithDictionaryDefault(false), parquet.WithStats(false),
		parquet.WithDataPageSize(page), parquet.WithBatchSize(batch)), pqarrow.DefaultWriterProps())
	if err != nil {
		a.t.Fatal(err)
	}
	id := strings.Repeat("x", 8<<20)
	for range 4 { // each row group takes 256 MiB when it is read
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		rows := b.Field(0).(*array.StructBuilder)
		for range 32 {
			rows.Append(true)
			rows.FieldBuilder(0).(*array.StringBuilder).Append(id)
			rows.FieldBuilder(1).(*array.Int64Builder).Append(1)
		}
		record := b.NewRecordBatch()
		if err := w.Write(record); err != nil {
			a.t.Fatal(err)
		}
		record.Release()
		b.Release()
	}
	if err := w.Close(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Logf("the checkpoint has %d bytes", out.Len())
	return out.Bytes()
}

// escaped runs the commands that print texts of other programs, and expects no character in their output that controls
// a terminal. It returns the first line of the output that contains "owned", a part of the hostile texts.
func (a *attack) escaped() (shown string) {
	a.t.Helper()
	for _, args := range [][]string{{"table", "inspect"}, {"table", "inspect", "--output", "json"}, {"holds"}, {"offsets", "show"}, {"verify"}} {
		code, text := a.command(append(args, "--config", a.m.config)...)
		if code > 1 {
			a.t.Errorf("connector %s: exit code %d: %s", strings.Join(args, " "), code, tail([]byte(text)))
		}
		if strings.ContainsAny(text, "\x1b\x07\u202e\u009b") {
			a.t.Errorf("connector %s shows escapes: %q", strings.Join(args, " "), tail([]byte(text)))
		}
		if shown == "" {
			shown = firstWith(text, "owned")
		}
	}
	return "shown as " + shown
}
