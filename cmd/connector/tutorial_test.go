package main

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array" //nolint:depguard // the test looks at decoded columns
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// These tests execute the pages that a new reader starts with: the tutorial, the configuration in the README, and the
// pages about column types, troubleshooting and other connectors. TestCommandsInDocs executes the blocks marked sh,
// TestTutorial those marked console.

// A block is a fenced block of a page.
type block struct{ lang, text string }

func blocks(page string) (all []block) {
	inside, indent := false, ""
	for line := range strings.Lines(page) {
		lang, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && !inside:
			all, inside = append(all, block{lang: lang}), true
			indent, _, _ = strings.Cut(line, "`")
		case fence:
			inside = false
		case inside:
			all[len(all)-1].text += strings.TrimPrefix(line, indent)
		}
	}
	return all
}

// firstBlock returns the text of the first block of a language.
func firstBlock(t *testing.T, page, lang string) string {
	t.Helper()
	for _, b := range blocks(page) {
		if b.lang == lang {
			return b.text
		}
	}
	t.Fatalf("no block of %s", lang)
	return ""
}

// linesOf returns the number of lines of a text that are not blank.
func linesOf(text string) (n int) {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	return n
}

var (
	ticked   = regexp.MustCompile("`([^`]+)`")
	pageTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	spaces   = regexp.MustCompile(` +`)
)

// asOnPage reports whether the output of a program is as a page shows it. Times and the width of columns may differ,
// and "…" on the page matches any text.
func asOnPage(page, printed string) bool {
	normal := func(s string) string {
		return strings.TrimSpace(spaces.ReplaceAllString(pageTime.ReplaceAllString(s, "TIME"), " "))
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(normal(page)), "…", "(?s:.*)")
	return regexp.MustCompile(`\A` + pattern + `\z`).MatchString(normal(printed))
}

// tutorial is docs/tutorial.md while a test follows it.
type tutorial struct {
	*lake
	dir string
	log string // the stderr of the last command
	ran []string
}

// TestTutorial follows docs/tutorial.md: it writes the files, produces the records and executes the commands in their
// order, and compares what they print with what the page shows.
func TestTutorial(t *testing.T) {
	p := &tutorial{lake: newLake(t, "topics: {unused: {}}"), dir: filepath.ToSlash(t.TempDir())}
	page := strings.NewReplacer("127.0.0.1:9092", p.Broker.ListenAddrs()[0], "/tmp/sluice-tutorial", p.dir).Replace(read(t, "../../docs/tutorial.md"))
	t.Chdir(p.dir)
	for _, b := range blocks(page) {
		switch b.lang {
		case "yaml":
			p.write("config.yaml", b.text)
			if !slices.Equal(mustLoad(t, "config.yaml", nil).Kafka.Brokers, p.Broker.ListenAddrs()) {
				t.Fatalf("another broker, which the connector would wait for:\n%s", b.text)
			}
			if n := linesOf(b.text); n != 10 {
				t.Errorf("the config has %d lines, not ten", n)
			}
		case "json":
			p.write("records.json", b.text)
		case "console":
			p.console(b.text)
		case "text":
			p.logged(b.text)
		case "sh": // TestCommandsInDocs executes these blocks
		default:
			t.Errorf("no test knows a block of %q", b.lang)
		}
	}
	for _, command := range []string{"validate", "run", "deadletters list", "deadletters show", "verify", "init", "python3", "duckdb"} {
		if !slices.ContainsFunc(p.ran, func(ran string) bool { return strings.HasPrefix(ran, command) }) {
			t.Errorf("the page does not execute %s", command)
		}
	}
}

func (p *tutorial) write(name, text string) {
	p.T.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.T.Fatal(err)
	}
}

// console executes the commands of a block. Each is a line that begins with "$ ", followed by what it prints.
func (p *tutorial) console(text string) {
	p.T.Helper()
	if !strings.HasPrefix(text, "$ ") {
		p.T.Errorf("a block without a command: %s", text)
	}
	for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
		command, page, _ := strings.Cut(part, "\n")
		if printed := p.execute(command, page); !asOnPage(page, printed) {
			p.T.Errorf("$ %s\nprints:\n%s\nthe page shows:\n%s", command, printed, page)
		}
	}
}

// execute executes a command and returns its output. page is the output that the page shows.
func (p *tutorial) execute(command, page string) string {
	p.T.Helper()
	words := strings.Fields(command)
	flag := func(name string) string {
		if i := slices.Index(words, name); i > 0 && i+1 < len(words) {
			return words[i+1]
		}
		p.T.Errorf("%s has no %s", command, name)
		return ""
	}
	switch words[0] {
	case "connector":
		code, out, errs := connectorRun(p.T, words[1:]...)
		if code != exitOK {
			p.T.Errorf("$ %s: exit code %d\n%s%s", command, code, out, errs)
		}
		p.log = errs
		p.ran = append(p.ran, strings.Join(words[1:], " "))
		return out
	case "kafka-topics.sh":
		n, err := strconv.ParseInt(flag("--partitions"), 10, 32)
		if err != nil || !slices.Contains(words, "--create") || flag("--bootstrap-server") != p.Broker.ListenAddrs()[0] {
			p.T.Errorf("%s: %v", command, err)
		}
		p.Create(flag("--topic"), int32(n))
		return "Created topic " + flag("--topic") + ".\n"
	case "kafka-console-producer.sh":
		for line := range strings.Lines(read(p.T, filepath.Join(p.dir, flag("<")))) {
			r := &kgo.Record{Topic: flag("--topic"), Value: []byte(strings.TrimSuffix(line, "\n"))}
			if err := p.Client.ProduceSync(p.T.Context(), r).FirstErr(); err != nil || flag("--bootstrap-server") != p.Broker.ListenAddrs()[0] {
				p.T.Errorf("%s: %v", command, err)
			}
		}
	case "python3", "duckdb":
		p.ran = append(p.ran, words[0])
		p.query(command, page)
		return page
	case "mkdir":
		if command != "mkdir -p "+p.dir+" && cd "+p.dir {
			p.T.Errorf("%s is not the folder of the config, %s", command, p.dir)
		}
	default:
		p.T.Errorf("no test executes %q", command)
	}
	return ""
}

var (
	polarsQuery = regexp.MustCompile(`^python3 -c "import polars; print\(polars\.read_delta\('([^']+)'\)\.select\(([^)]+)\)\)"$`)
	duckdbQuery = regexp.MustCompile(`^duckdb -c "INSTALL delta; LOAD delta; SELECT \* FROM delta_scan\('file://([^']+)'\)"$`)
)

// query checks a command with a query in place of executing it: the table must exist, and the page must show its rows.
func (p *tutorial) query(command, page string) {
	p.T.Helper()
	if m := duckdbQuery.FindStringSubmatch(command); m != nil {
		if _, err := os.Stat(filepath.Join(m[1], "_delta_log")); err != nil || page != "" {
			p.T.Errorf("%s: %v", command, err)
		}
		return
	}
	m := polarsQuery.FindStringSubmatch(command)
	if m == nil {
		p.T.Errorf("unknown query: %s", command)
		return
	}
	columns := strings.Split(strings.ReplaceAll(m[2], "'", ""), ", ")
	want := [][]string{columns}
	want = append(want, p.values(m[1], columns)...)
	var got [][]string
	for line := range strings.Lines(page) {
		if row, ok := strings.CutPrefix(strings.TrimSpace(line), "│"); ok {
			cells := strings.Split(strings.TrimSuffix(row, "│"), "┆")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			got = append(got, cells)
		}
	}
	if len(got) > 3 {
		got = slices.Delete(got, 1, 3) // the line below the header and the line of types
	}
	if d := gocmp.Diff(want, got); d != "" {
		p.T.Errorf("rows of the table, and of the page (-want +got):\n%s", d)
	}
	if shape := fmt.Sprintf("shape: (%d, %d)\n", len(want)-1, len(columns)); !strings.HasPrefix(page, shape) {
		p.T.Errorf("the page shows no %s", shape)
	}
}

// values returns the rows of some columns of a table, in the way polars prints them.
func (l *lake) values(table string, columns []string) (rows [][]string) {
	l.T.Helper()
	store, err := objstore.NewLocal(l.T.Context(), table)
	if err != nil {
		l.T.Fatal(err)
	}
	defer store.Close()
	state, err := deltalog.Load(l.T.Context(), store)
	if err != nil {
		l.T.Fatal(err)
	}
	var q scan.Query
	for _, c := range columns {
		q.Columns = append(q.Columns, []string{c})
	}
	err = scan.Run(l.T.Context(), store, state, q, func(r scan.Rows) error {
		for i := range int(r.Batch.NumRows()) {
			var row []string
			for _, c := range r.Batch.Columns() {
				row = append(row, polarsText(c, i))
			}
			rows = append(rows, row)
		}
		return nil
	})
	if err != nil {
		l.T.Fatal(err)
	}
	return rows
}

func polarsText(c arrow.Array, i int) string {
	switch {
	case c.IsNull(i):
		return "null"
	case c.DataType().ID() == arrow.FLOAT64 && !strings.Contains(c.ValueStr(i), "."):
		return c.ValueStr(i) + ".0"
	case c.DataType().ID() == arrow.TIMESTAMP:
		return timeOf(c, i).Format("2006-01-02 15:04:05 UTC")
	}
	return c.ValueStr(i)
}

// timeOf returns value i of a timestamp column.
func timeOf(c arrow.Array, i int) time.Time {
	at, err := time.Parse(time.RFC3339Nano, c.ValueStr(i))
	if err != nil {
		panic(err) // the format of Arrow's timestamps is not as expected
	}
	return at.UTC()
}

var logHead = regexp.MustCompile(`^[0-9:]{8} ([A-Z]+) +(.+?)  `)

var logValue = regexp.MustCompile(`([a-z_]+)=("(?:[^"\\]|\\.)*"|\S+)`)

// logged expects each line of a block to be in the log of the last command.
func (p *tutorial) logged(text string) {
	p.T.Helper()
	for want := range strings.Lines(text) {
		head := logHead.FindStringSubmatch(want)
		if head == nil {
			p.T.Fatalf("no line of a terminal: %s", want)
		}
		found := false
		for line := range strings.Lines(p.log) {
			said := map[string]any{}
			if err := json.Unmarshal([]byte(line), &said); err != nil {
				p.T.Fatalf("%v: %s", err, line)
			}
			all := logValue.FindAllStringSubmatch(want, -1)
			found = found || len(all) > 0 && said["level"] == head[1] && said["msg"] == head[2] && !slices.ContainsFunc(all, func(m []string) bool { return fmt.Sprint(said[m[1]]) != strings.Trim(m[2], `"`) })
		}
		if !found {
			p.T.Errorf("the log has no line %s\n%s", want, p.log)
		}
	}
}

// TestReadmeConfig expects the configuration in the README to be valid and to have ten lines.
func TestReadmeConfig(t *testing.T) {
	text := firstBlock(t, read(t, "../../README.md"), "yaml")
	cfg, problems := config.Load(write(t, text), noEnv)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if n := linesOf(text); n != 10 {
		t.Errorf("it has %d lines, not ten", n)
	}
	want := []string{"s3://lake/tables/orders", "field:order_id"}
	orders := cfg.Topics["orders"]
	if d := gocmp.Diff(want, []string{cfg.TableURL(orders), orders.Identity.By}); d != "" {
		t.Errorf("what it says (-want +got):\n%s", d)
	}
}

// tableRows returns the cells of a page's first table whose head begins with a text, by row.
func tableRows(t *testing.T, page, head string) (rows [][]string) {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n| "+head)
	if !found {
		t.Fatalf("no table %q", head)
	}
	_, rest, _ = strings.Cut(rest, "|---|\n")
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			return rows
		case strings.HasPrefix(line, "| "):
			cells := strings.Split(strings.Trim(line, "|"), " | ")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

func codes(cell string) (all []string) {
	for _, m := range ticked.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// decoded decodes a record whose only field has this type and value. It returns the column, or the reason code if the
// record does not become a row.
func decoded(t *testing.T, typ, value string) (arrow.Array, string) {
	t.Helper()
	return decodedWith(t, nil, typ, value)
}

func decodedWith(t *testing.T, options decode.ColumnOptions, typ, value string) (arrow.Array, string) {
	t.Helper()
	s, err := schema.ParseDDL("c " + typ)
	if err != nil {
		t.Fatal(err)
	}
	b, err := decode.JSON{Columns: options}.Builder(s.WithKafkaColumns())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add(connector.Partition{Topic: "t"}, &connector.Record{Value: []byte(`{"c":` + value + `}`)}); err != nil {
		return nil, string(connector.CodeOf(err))
	}
	rows := b.Seal()
	return rows.Column(rows.Schema().FieldIndices("c")[0]), ""
}

// TestDocsSchema_Types compares the tables of types with the decoder: each named value becomes the value that the page
// shows.
func TestDocsSchema_Types(t *testing.T) {
	page := read(t, "../../docs/schema.md")
	documented := map[string]bool{}
	for _, row := range tableRows(t, page, "type | becomes a value") {
		for _, typ := range codes(row[0]) {
			name := typ[:len(typ)-len(strings.TrimLeft(typ, "abcdefghijklmnopqrstuvwxyz_"))]
			documented[name] = true
			for _, value := range codes(row[1]) {
				if _, code := decoded(t, typ, value); code != "" {
					t.Errorf("%s of %s: %s, the page has it as a value", typ, value, code)
				}
			}
			for group := range strings.SplitSeq(row[2], ";") {
				values := codes(group)
				want := values[len(values)-1]
				for _, value := range values[:len(values)-1] {
					if _, code := decoded(t, typ, value); code != want {
						t.Errorf("%s of %s: %q, the page says %s", typ, value, code, want)
					}
				}
			}
		}
	}
	_, err := schema.ParseDDL("c nonsense")
	_, names, _ := strings.Cut(err.Error(), "one of ")
	for name := range strings.SplitSeq(names, ", ") {
		if name, _, _ = strings.Cut(name, "<"); !documented[name] {
			t.Errorf("the page does not have the type %s", name)
		}
	}
	if _, code := decoded(t, "int not null", "null"); !strings.Contains(page, "`"+code+"`") {
		t.Errorf("null in a NOT NULL column: %s", code)
	}
}

func TestDocsSchema_Timestamps(t *testing.T) {
	for _, row := range tableRows(t, read(t, "../../docs/schema.md"), "value | stored") {
		column, code := decoded(t, "timestamp", codes(row[0])[0])
		got := code
		if column != nil {
			got = timeOf(column, 0).Format(time.RFC3339Nano)
		}
		if want := codes(row[1])[0]; got != want {
			t.Errorf("%s: %s, the page says %s", row[0], got, want)
		}
	}
}

// TestDocsSchema_Options compares the table of column options with the decoder.
func TestDocsSchema_Options(t *testing.T) {
	page, documented := read(t, "../../docs/schema.md"), map[string]bool{}
	_, section, _ := strings.Cut(page, "### Column options")
	base := "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///data}\n"
	if _, problems := config.Load(write(t, base+firstBlock(t, section, "yaml")), noEnv); len(problems) > 0 {
		t.Errorf("the configuration of the page: %v", problems)
	}
	for _, row := range tableRows(t, page, "option | type | value") {
		words, want := codes(row[0])[0], codes(row[3])[0]
		for word := range strings.FieldsSeq(words) {
			documented[word] = true
		}
		option, err := decode.ParseColumnOption(words)
		if err != nil {
			t.Error(err)
			continue
		}
		column, got := decodedWith(t, decode.ColumnOptions{"c": option}, codes(row[1])[0], codes(row[2])[0])
		switch c := column.(type) {
		case *array.Timestamp:
			got = timeOf(c, 0).Format(time.RFC3339Nano)
		case *array.Binary:
			got = hex.EncodeToString(c.Value(0))
		case *array.String:
			got = c.Value(0)
		}
		if got != want {
			t.Errorf("%s, %s: %s, the page says %s", words, row[2], got, want)
		}
	}
	for _, word := range decode.OptionWords() {
		if !documented[word] {
			t.Errorf("the page does not have the option %s", word)
		}
	}
}

func TestDocsSchema_Refused(t *testing.T) {
	typ := ""
	for _, row := range tableRows(t, read(t, "../../docs/schema.md"), "type | instead") {
		for _, typ = range append(codes(row[0]), typ)[:max(1, len(codes(row[0])))] {
			if _, err := schema.ParseDDL("c " + typ); err == nil {
				t.Errorf("type %s is not refused", typ)
			}
		}
		for _, other := range codes(row[1]) {
			if _, err := schema.ParseDDL("c " + other); err != nil && !strings.Contains(other, "…") {
				t.Error(err)
			}
		}
	}
}

// evolving is a lake whose table changes its schema.
type evolving struct {
	*lake
	table string
}

// runs produces records, and runs a member until it is current; ddl is the schema in its configuration. It returns the
// reasons and details of the holds that remain.
func (e *evolving) runs(ddl string, records ...string) (details []string) {
	e.T.Helper()
	for _, r := range records {
		if err := e.Client.ProduceSync(e.T.Context(), &kgo.Record{Topic: "sales", Value: []byte(r)}).FirstErr(); err != nil {
			e.T.Fatal(err)
		}
	}
	base, _, _ := strings.Cut(read(e.T, e.Config), "topics:")
	if err := os.WriteFile(e.Config, fmt.Appendf(nil, "%stopics: {sales: {table: %s, schema: %q}}\n", base, e.table, ddl), 0o600); err != nil {
		e.T.Fatal(err)
	}
	code, _, _ := connectorRun(e.T, "run", "--until-current", "--config", e.Config)
	out, _ := e.lake.runs(code, "holds", "--output", "json", "--config", e.Config)
	var holds []admin.Hold
	if err := json.Unmarshal([]byte(out), &holds); err != nil {
		e.T.Fatalf("%v: %s", err, out)
	}
	for _, h := range holds {
		details = append(details, string(h.Reason)+": "+h.Detail)
	}
	return details
}

// alter replaces a part of the table's schema, as ALTER TABLE does.
func (e *evolving) alter(was, is string) {
	e.T.Helper()
	state, err := deltalog.Load(e.T.Context(), objstore.Sub(e.Store, e.table))
	if err != nil {
		e.T.Fatal(err)
	}
	m := state.Metadata
	if !strings.Contains(m.SchemaString, was) {
		e.T.Fatalf("no %s in %s", was, m.SchemaString)
	}
	m.SchemaString = strings.Replace(m.SchemaString, was, is, 1)
	body, err := deltalog.Encode([]deltalog.Action{deltalog.CommitInfo{Operation: "ALTER TABLE"}, m})
	if err != nil {
		e.T.Fatal(err)
	}
	e.Append(e.table, strings.TrimSpace(string(body)))
}

// TestDocsSchema_Changes makes the schema changes that docs/schema.md explains, and expects the holds that it quotes.
func TestDocsSchema_Changes(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/schema.md")
	l := newLake(t, "topics: {sales: {}}")
	l.Create("sales", 1)
	e := &evolving{lake: l, table: "sales"}
	goes := func(ddl string, records ...string) {
		t.Helper()
		if details := e.runs(ddl, records...); details != nil {
			t.Errorf("%s: held: %q", ddl, details)
		}
	}
	conflict := func(ddl string, records ...string) {
		t.Helper()
		details := e.runs(ddl, records...)
		for _, detail := range details {
			detail, found := strings.CutPrefix(detail, "schema_conflict: ")
			if !found || !strings.Contains(page, "held: `"+detail+"`") {
				t.Errorf("%s: held: %s; the page quotes another detail", ddl, detail)
			}
		}
		if details == nil {
			t.Errorf("%s: not held", ddl)
		}
	}
	has := func(columns string, want ...string) {
		t.Helper()
		var got []string
		for _, row := range l.values(filepath.Join(l.Dir, "lake", e.table), strings.Fields("_kafka_offset "+columns)) {
			got = append(got, strings.Join(row, " "))
		}
		slices.SortFunc(got, func(a, b string) int { return cmp.Compare(a[:1], b[:1]) })
		if d := gocmp.Diff(want, got); d != "" {
			t.Errorf("rows (-want +got):\n%s", d)
		}
	}
	goes("id int, item string not null", `{"id":1,"item":"tea","channel":"web"}`)

	// A column is added in the config. One that is not null cannot be.
	conflict("id int, item string not null, channel string not null", `{"id":2,"item":"cup","channel":"web"}`)
	goes("id int, item string not null, channel string")
	has("id item channel", "0 1 tea null", "1 2 cup web")

	// The schema of the table decides, not that in the configuration.
	goes("id int, item string not null", `{"id":3,"item":"pot","channel":"shop"}`)
	goes("id int not null, item string not null, channel string", `{"item":"pan","channel":"shop"}`)
	has("id item channel", "0 1 tea null", "1 2 cup web", "2 3 pot shop", "3 null pan shop")

	// A column becomes nullable.
	goes("id int, item string, channel string", `{"id":5}`)
	has("id item", "0 1 tea", "1 2 cup", "2 3 pot", "3 null pan", "4 5 null")

	// A column is added in the table. Its field fills it, before and after the config has it, but not while it is NOT NULL.
	const other = `,{"name":"other","type":"string","nullable":false,"metadata":{}}`
	e.alter(`]}`, other+`]}`)
	conflict("id int, item string, channel string", `{"id":8,"item":"tin","other":"x"}`)
	e.alter(other, strings.Replace(other, "false", "true", 1))
	goes("id int, item string, channel string")
	goes("id int, item string, channel string, other string", `{"id":9,"item":"tub","other":"y"}`)
	has("id other", "0 1 null", "1 2 null", "2 3 null", "3 null null", "4 5 null", "5 8 x", "6 9 y")
	e.alter(strings.Replace(other, "false", "true", 1), ``)

	// A column of the table is dropped. It comes back only if the config has it.
	e.alter(`,{"name":"channel","type":"string","nullable":true,"metadata":{}}`, ``)
	goes("id int, item string, price double", `{"id":6,"item":"jug","channel":"web","price":1.5}`)
	has("id item price", "0 1 tea null", "1 2 cup null", "2 3 pot null", "3 null pan null", "4 5 null null", "5 8 tin null", "6 9 tub null", "7 6 jug 1.5")

	// The type of a column cannot change, nor the case of its name. The records go to a new table.
	conflict("id int, item string, price string")
	conflict("id int, Item string")
	conflict("id bigint, item string, channel string", `{"id":6000000000,"item":"jar"}`)
	e.table = "sales_v2"
	v2 := "id bigint, item string, price double, sold_at timestamp"
	if details := e.runs(v2); len(details) != 1 || !strings.HasPrefix(details[0], "unknown_history: ") || !strings.Contains(page, "`unknown_history`") {
		t.Errorf("held: %q", details)
	}
	adopt := regexp.MustCompile("`connector (offsets adopt sales [^`]+) --reason \"([^\"]+)\"`").FindStringSubmatch(page)
	if adopt == nil {
		t.Fatal("the page does not say how the new table gets its positions")
	}
	l.runs(0, append(strings.Fields(adopt[1]), "--reason", adopt[2], "--yes")...)
	goes(v2)
	has("id item", "8 6000000000 jar")
	conflict("id int, item string", `{"id":1}`)

	// The configurations that the page shows are valid, and one is for the new table.
	base, tables := "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///data}\n", []string{}
	for _, b := range blocks(page) {
		if b.lang != "yaml" {
			continue
		}
		cfg, problems := config.Load(write(t, base+b.text), noEnv)
		if len(problems) > 0 {
			t.Fatalf("%v in\n%s", problems, b.text)
		}
		tables = append(tables, cfg.Topics["sales"].Table)
	}
	if !slices.Contains(tables, "sales_v2") {
		t.Errorf("the page shows configurations of the tables %q", tables)
	}
}

// TestDocsTroubleshooting compares docs/troubleshooting.md with the code: metrics in queries, texts and keys of log lines,
// and alerts must exist.
func TestDocsTroubleshooting(t *testing.T) {
	t.Parallel()
	page, q := read(t, "../../docs/troubleshooting.md"), newQueries(t)
	promql, logql := 0, strings.Count(page, "|=")
	for _, b := range blocks(page) {
		for query := range strings.Lines(b.text) {
			switch {
			case strings.TrimSpace(query) == "":
			case b.lang == "promql":
				promql++
				q.metrics.check(t, "docs/troubleshooting.md", query)
			case b.lang == "logql":
				if !q.check(t, "docs/troubleshooting.md", query) {
					t.Errorf("no query: %s", query)
				}
			}
		}
	}
	for _, span := range spans(page) {
		q.check(t, "docs/troubleshooting.md", span)
	}
	words := inLog.FindAllStringSubmatch(page, -1)
	if promql < 10 || len(words) < 10 || len(words) != logql {
		t.Errorf("%d queries in PromQL, %d in LogQL, %d of them read", promql, logql, len(words))
	}
	for _, m := range regexp.MustCompile("the log says `([^`]+)`").FindAllStringSubmatch(page, -1) {
		if q.lines[m[1]] == nil {
			t.Errorf("the log never says %q", m[1])
		}
	}
	for _, keyword := range []string{"UNHEALTHY", "BACKPRESSURE", "DEAD LETTER", "Readiness check FAILED"} {
		if !strings.Contains(page, `|= "`+keyword+`"`) {
			t.Errorf("no query for %s", keyword)
		}
	}
	recoveries := runbooks(page)
	for _, title := range []string{"Replay dead letters", "A circuit breaker does not close", "Reset the fingerprints"} {
		checkRunbook(t, title, recoveries[title], q)
	}
	paths := documentedKeys(t)
	for _, row := range tableRows(t, page, "practice | here") {
		for _, key := range codes(row[2]) {
			if !hasKey(paths, key) {
				t.Errorf("there is no key %s", key)
			}
		}
	}
	var rules ruleFile
	strictYAML(t, alertsFile, &rules)
	alerts := rules.alerts()
	for _, m := range regexp.MustCompile("`((?:Consumer|Sluice|Worker|DLQ)[A-Z][A-Za-z]+)`").FindAllStringSubmatch(page, -1) {
		if !slices.ContainsFunc(alerts, func(r rule) bool { return r.Alert == m[1] }) {
			t.Errorf("there is no alert %s", m[1])
		}
	}
}

// hasKey reports whether a key is one of the configuration, or has keys below it.
func hasKey(paths []string, key string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		path = strings.TrimPrefix(path, "defaults.")
		return path == key || strings.HasPrefix(path, key+".")
	})
}

// TestDocsComingFrom expects each key that docs/coming-from.md names to be a key of the configuration. Each environment
// variable that replaces a key must be on the page, with its key, and in config.yaml.
func TestDocsComingFrom(t *testing.T) {
	page := read(t, "../../docs/coming-from.md")
	paths := documentedKeys(t)
	records, operators, _ := strings.Cut(page, "\n## What operators notice\n")
	for _, part := range []string{records, operators} {
		for _, row := range tableRows(t, part, "what you had") {
			for _, key := range codes(row[len(row)-1]) {
				if !hasKey(paths, key) {
					t.Errorf("there is no key %s", key)
				}
			}
		}
	}
	documented := map[string]string{}
	for _, row := range tableRows(t, page, "variable | key") {
		for _, variable := range codes(row[0]) {
			documented[variable] = codes(row[1])[0]
		}
	}
	want := map[string]string{
		config.SeedTopic: "topics", config.SeedPort: "health.listen", config.SeedLagEvery: "health.lag.every", config.SeedLevel: "log.level", config.SeedLevelOfNET: "log.level",
	}
	for _, s := range config.SeedKeys {
		want[s.Variable] = s.Key
	}
	if d := gocmp.Diff(want, documented); d != "" {
		t.Errorf("variables (-want +got):\n%s", d)
	}
	head, _, _ := strings.Cut(read(t, shipped), "\npipeline:")
	for variable := range want {
		if !strings.Contains(head, variable) {
			t.Errorf("config.yaml does not name %s", variable)
		}
	}
}

// TestDocsLinks expects each link from page to page to have a target.
func TestDocsLinks(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	pages := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md", "test/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/adr/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	links := 0
	for _, page := range pages {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]*)\)`).FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if info, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if !info.IsDir() && anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: %s has no heading %s", page, target, anchor)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links found", links)
	}
}
