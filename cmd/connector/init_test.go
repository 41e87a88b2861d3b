package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"sluice/internal/laketest"
)

// produceTo produces values to partition 0 of a topic.
func (l *lake) produceTo(topic string, values ...string) {
	l.T.Helper()
	for _, v := range values {
		if err := l.Client.ProduceSync(l.T.Context(), &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr(); err != nil {
			l.T.Fatal(err)
		}
	}
}

// asksInit runs connector init as on a terminal. Each answer is a line that a person types.
func asksInit(t *testing.T, answers string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := &cli{env: os.LookupEnv, stdin: strings.NewReader(answers), stdout: &out, stderr: &errs, exit: func(int) {}, terminal: func() bool { return true }}
	root := c.root()
	root.SetArgs(append([]string{"init"}, args...))
	root.SetOut(&out)
	root.SetErr(&errs)
	code = exitCodeOf(t.Context(), root, &errs)
	return code, out.String(), errs.String()
}

// TestInit: the file that init writes is valid, and a run with it fills the table. It has only keys that differ from
// their defaults, each below a comment.
func TestInit(t *testing.T) {
	t.Setenv("HEALTH_CHECK_PORT", "0")
	l := newLake(t, "topics: {unused: {}}")
	l.Create("orders", 2)
	l.Create("users", 1)
	l.produceTo("orders", `{"id":1,"item":"tea ${HOME}","price":3.5,"any":1,"odd":null}`, `{"id":2,"item":"cup","price":4,"any":"x","${HOME}":1}`)
	file, store := filepath.Join(l.Dir, "new.yaml"), "file://"+filepath.ToSlash(l.Dir)+"/lake"
	args := []string{"init", "--broker", l.Broker.ListenAddrs()[0], "--storage", store, "--topic", "orders", "--output", file, "--set", "kafka.session=10s", "--set", "kafka.tls.enabled=false", "--timeout", "5m"}
	code, out, errs := connectorRun(t, args...)
	if code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	for _, want := range []string{"orders  2           2", "users   1           0", "lake: can be used; no table yet", "orders: 5 columns from 2 records", "connector run --config " + file} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	text := read(t, file)
	want := strings.NewReplacer("BROKER", l.Broker.ListenAddrs()[0], "STORE", store).Replace(`# Written by connector init. It has only the keys that differ from their defaults, or have none.
# config.yaml in the sources, and docs/configuration.md, explain every key. connector validate checks this file.

# The name of this pipeline. Never change it while the tables exist: they keep the positions under it.
pipeline: orders
kafka:
  # The brokers to contact first.
  brokers: ['BROKER']
  # How long the group waits for a heartbeat of a member.
  session: 10s
storage:
  # The folder of all tables.
  url: STORE
topics:
  orders:
    # The columns, from the newest 2 records: delete, rename or add some before the first run.
    schema: |
      /* topic orders: 2 records of 1 partitions */
      id bigint /* all records: integer */,
      item string /* all records: string */,
      price double /* all records: integer, number */,
      any string /* all records; CONFLICT in any: integer 1, string 1 */,
      ` + "`$${HOME}`" + ` bigint /* 1 of 2 records: integer */
      /* field "odd" has no column: it is always null, so its type is unknown (0 of 2 records, null in 1 of 2 records) */
    # These fields have values of several kinds. The option raw keeps the JSON text of any value.
    column_options: {any: raw}
`)
	if d := cmp.Diff(want, text); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, command := range [][]string{{"validate"}, {"run", "--until-current"}} {
		if code, out, errs := connectorRun(t, append(command, "--config", file)...); code != exitOK {
			t.Fatalf("%v: exit code %d\n%s%s", command, code, out, errs)
		}
	}
	l.Has("orders", laketest.UpTo(2, "orders:0"))
	if d := cmp.Diff([][]string{{"1", "1"}, {"2", `"x"`}}, l.values(filepath.Join(l.Dir, "lake", "orders"), []string{"id", "any"})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	// A second init does not overwrite the file, and sees the table.
	if code, _, errs := connectorRun(t, args...); code != exitRefused || !strings.Contains(errs, file+" exists: name another file with --output, or overwrite it with --force") || read(t, file) != text {
		t.Errorf("exit code %d: %s", code, errs)
	}
	code, out, errs = connectorRun(t, append(args, "--force")...)
	if code != exitOK || !strings.Contains(out, "1 table: orders\n") || !strings.Contains(out, "orders has a table already: connector table schema diff --topic orders --config "+file) {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	if left, _ := filepath.Glob(filepath.Join(l.Dir, ".connector-init-*")); len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
}

// TestInit_SeveralTopics: each topic gets its own schema, also if names of fields have characters that YAML does not have.
func TestInit_SeveralTopics(t *testing.T) {
	t.Setenv("HEALTH_CHECK_PORT", "0")
	l := newLake(t, "topics: {unused: {}}")
	l.Create("a", 1)
	l.Create("true", 1)
	l.produceTo("a", `{"n":1}`)
	l.produceTo("true", `{"m":true,"\u007f":1,"tab\tx":2,"\u2028":3,"\u0085":1,"*/":1,"# x":1,"\u202e\u200b":1,"\ufeffé":1,"a'b":2,"`+"`"+`":1,"p.q":1}`, `{"p.q":"x"}`)
	file := filepath.Join(l.Dir, "deep.down", "config.yaml")
	if err := os.Mkdir(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	code, out, errs := connectorRun(t, "init", "--broker", l.Broker.ListenAddrs()[0], "--storage", "file://"+filepath.ToSlash(l.Dir)+"/lake", "--topic", "true,a", "--output", file, "--timeout", "5m")
	if code != exitOK || !strings.Contains(read(t, file), "\npipeline: deep.down\n") {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	if code, out, errs := connectorRun(t, "run", "--until-current", "--config", file); code != exitOK {
		t.Fatalf("exit code %d\n%s%s\n%s", code, out, errs, read(t, file))
	}
	l.Has("a", laketest.UpTo(1, "a:0"))
	l.Has("true", laketest.UpTo(2, "true:0"))
}

// TestInit_Refuses: what is missing or wrong is an error that says what to do, and no file is written.
func TestInit_Refuses(t *testing.T) {
	l := newLake(t, "topics: {unused: {}}")
	l.Create("orders", 1)
	l.Create("empty", 1)
	l.produceTo("orders", `{"n":1}`)
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	blocked := filepath.Join(l.Dir, "blocked")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broker, store := "--broker "+l.Broker.ListenAddrs()[0], " --storage file://"+filepath.ToSlash(l.Dir)+"/lake"
	file := filepath.Join(l.Dir, "refused.yaml")
	for name, c := range map[string]struct {
		code       int
		args, want string
	}{
		"no flags":           {exitUsage, "", "there is no terminal for questions: write --broker and --storage and --topic, too"},
		"no topic":           {exitUsage, broker + store, "name the topics with --topic: the cluster has empty, orders"},
		"no such topic":      {exitFound, broker + store + " --topic order", "the cluster has no topic order; it has empty, orders"},
		"an empty topic":     {exitFound, broker + store + " --topic empty,orders", "topic empty has no record from which columns can be derived"},
		"a broker is down":   {exitDependency, "--broker " + down + store + " --topic orders", "broker " + down + ": "},
		"no port":            {exitUsage, "--broker localhost" + store + " --topic orders", `"localhost" has no port: write localhost:9092`},
		"no directory":       {exitDependency, broker + " --storage file://" + blocked + "/x --topic orders", "blocked"},
		"a bucket is down":   {exitDependency, broker + " --storage s3://lake/t --topic orders --set storage.s3.endpoint=http://" + down + " --set storage.s3.region=x --set storage.s3.access_key=${A} --set storage.s3.secret_key=${A}", down},
		"a secret":           {exitUsage, broker + store + " --topic orders --set kafka.sasl.password=geheim", "kafka.sasl.password is a secret, and no file shall have it: write '${NAME}' with the name of a variable, or set kafka.sasl.password_file"},
		"a secret's default": {exitUsage, broker + store + " --topic orders --set kafka.sasl.password=${X:-geheim}", "is a secret"},
		"no variable":        {exitUsage, broker + store + " --topic orders --set kafka.sasl.mechanism=plain --set kafka.sasl.username=u --set kafka.sasl.password=${SLUICE_NO_SUCH}", "SLUICE_NO_SUCH"},
		"an unknown key":     {exitUsage, broker + store + " --topic orders --set kafka.tls.enable=true", "did you mean kafka.tls.enabled?"},
		"another section":    {exitUsage, broker + store + " --topic orders --set health.enabled=false", "no key of the sections kafka and storage"},
		"no value":           {exitUsage, broker + store + " --topic orders --set kafka.rack", "write KEY=VALUE"},
		"a bad value":        {exitUsage, broker + store + " --topic orders --set kafka.session=1s", "kafka.session: "},
		"no records":         {exitUsage, broker + store + " --topic orders --records 0", "write a number from 1"},
		"a form":             {exitUsage, broker + store + " --topic orders --output json", "here it names the file to write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("A", "key")
			args := append([]string{"init", "--timeout", "3s"}, strings.Fields(c.args)...)
			if !strings.Contains(c.args, "--output") {
				args = append(args, "--output", file)
			}
			code, out, errs := connectorRun(t, args...)
			if code != c.code || !strings.Contains(errs, c.want) || strings.Contains(out+errs, "geheim") && name != "a secret" {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, out, errs)
			}
			if _, err := os.Lstat(file); err == nil {
				t.Error("it wrote a file")
			}
		})
	}
}

// TestInit_Asks: on a terminal init asks for what no flag says, and again after a failure.
func TestInit_Asks(t *testing.T) {
	t.Setenv("SECRET", "geheim")
	l := newLakeOn(t, "topics: {unused: {}}", "", []kgo.Opt{})
	l.Create("orders", 1)
	l.produceTo("orders", `{"n":1}`)
	file := filepath.Join(l.Dir, "asked.yaml")
	lakeURL := "file://" + filepath.ToSlash(l.Dir) + "/lake"
	answers := strings.Join([]string{
		"localhost",                            // without a port
		l.Broker.ListenAddrs()[0], "n", "none", // the address, TLS, SASL
		"file://" + filepath.ToSlash(l.Config) + "/x", // a file, and no directory
		lakeURL,
		"nothing", // no such topic
		"",        // the default: the only topic
		"shop",
	}, "\n") + "\n"
	code, out, errs := asksInit(t, answers, "--output", file, "--timeout", "5m")
	text := read(t, file)
	if code != exitOK || !regexp.MustCompile(`(?m)^pipeline: shop$`).MatchString(text) || !strings.Contains(text, "url: "+lakeURL) || strings.Contains(text, "tls") {
		t.Errorf("exit code %d\n%s\n%s\n%s", code, out, errs, text)
	}
	for _, want := range []string{"Kafka broker, host:port [127.0.0.1:9092]: ", "has no port: write localhost:9092\n", "the cluster has no topic nothing; it has orders\n", "Topics, with commas [orders]: ", "Name of the pipeline [orders]: "} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
	code, _, errs = asksInit(t, "", "--output", filepath.Join(l.Dir, "other.yaml"))
	if code != exitRefused || !strings.Contains(errs, "nothing was written: no answer: EOF") {
		t.Errorf("without an answer: exit code %d\n%s", code, errs)
	}
}

// TestInit_SASL: init connects with the secret of a variable. The file names the variable, also if a person typed its
// name, and the secret appears nowhere.
func TestInit_SASL(t *testing.T) {
	t.Setenv("KAFKA_PASSWORD", "geheim")
	l := newSASLLake(t)
	l.Create("orders", 1)
	l.produceTo("orders", `{"n":1}`)
	store, broker := "file://"+filepath.ToSlash(l.Dir)+"/lake", l.Broker.ListenAddrs()[0]
	for name, run := range map[string]func(file string) (int, string, string){
		"flags": func(file string) (int, string, string) {
			return connectorRun(t, "init", "--broker", broker, "--storage", store, "--topic", "orders", "--output", file, "--set", "kafka.sasl.mechanism=plain",
				"--set", "kafka.sasl.username=u", "--set", "kafka.sasl.password=${KAFKA_PASSWORD}", "--timeout", "5m")
		},
		"answers": func(file string) (int, string, string) {
			return asksInit(t, strings.Join([]string{broker, broker, "n", "plain", "u", "", store, "", ""}, "\n")+"\n", "--output", file, "--timeout", "1m")
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			code, out, errs := run(file)
			if code != exitOK {
				t.Fatalf("exit code %d\n%s%s", code, out, errs)
			}
			if text := read(t, file); !strings.Contains(text, "password: ${KAFKA_PASSWORD}\n") || strings.Contains(text+out+errs, "geheim") {
				t.Errorf("%s\n%s%s", text, out, errs)
			}
			expectValid(t, file)
		})
	}
}

// newSASLLake returns a lake whose broker demands SASL with the user u and the password geheim.
func newSASLLake(t *testing.T) *lake {
	t.Helper()
	user := []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: "geheim"}.AsMechanism())}
	return newLakeOn(t, "topics: {unused: {}}", `, sasl: {mechanism: plain, username: u, password: geheim}`, user, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "geheim"))
}

func expectValid(t *testing.T, file string) {
	t.Helper()
	if code, out, errs := connectorRun(t, "validate", "--config", file); code != exitOK {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

// TestInit_Interrupted: a signal ends a question, and no file is written.
func TestInit_Interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	typed, keyboard := io.Pipe()
	defer func() { _ = keyboard.Close() }()
	var out bytes.Buffer
	asked := &signaled{seen: make(chan struct{})}
	file := filepath.Join(t.TempDir(), "config.yaml")
	c := &cli{env: os.LookupEnv, stdin: typed, stdout: &out, stderr: asked, exit: func(int) {}, terminal: func() bool { return true }}
	root := c.root()
	root.SetArgs([]string{"init", "--output", file})
	go func() { <-asked.seen; cancel() }()
	if code := exitCodeOf(ctx, root, io.Discard); code != exitRefused {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(file); err == nil {
		t.Error("it wrote a file")
	}
}

// signaled closes seen at the first write.
type signaled struct{ seen chan struct{} }

// Write implements io.Writer.
func (s *signaled) Write(b []byte) (int, error) {
	select {
	case <-s.seen:
	default:
		close(s.seen)
	}
	return len(b), nil
}

// TestInit_WriteOnce: a file that another program has written meanwhile is not overwritten, except with --force.
func TestInit_WriteOnce(t *testing.T) {
	o := &setup{file: filepath.Join(t.TempDir(), "config.yaml")}
	if err := os.WriteFile(o.file, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.write([]byte("ours")); !errors.Is(err, fs.ErrExist) || read(t, o.file) != "theirs" {
		t.Errorf("%v: %s", err, read(t, o.file))
	}
	o.force = true
	if err := o.write([]byte("ours")); err != nil || read(t, o.file) != "ours" {
		t.Errorf("%v: %s", err, read(t, o.file))
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(o.file), ".*")); len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
}
