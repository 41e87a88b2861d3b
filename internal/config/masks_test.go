package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// secretCanary is a secret that no output may show. userCanary is the user name that precedes it in URLs.
const secretCanary, userCanary = "s3cr3tCanary", "annCanary"

func leaks(text string) bool {
	return strings.Contains(text, secretCanary) || strings.Contains(text, userCanary) || strings.Contains(text, "Canary")
}

// keyPaths returns the paths of all keys. Those of a topic's entry begin with topics.users, those of a pattern with
// topics.some.
func keyPaths() []string {
	var paths []string
	for _, k := range Default().keys() {
		paths = append(paths, k.path)
	}
	for _, k := range (&Topic{}).keys() {
		paths = append(paths, "defaults."+k.path, "topics.users."+k.path)
	}
	for _, k := range (&Pattern{}).keys() {
		paths = append(paths, "topics.some."+k.path)
	}
	return paths
}

// withKey returns a valid configuration with the key at path and this value added. value is YAML and is not quoted.
func withKey(path, value string) string {
	const good = "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///data}\ndefaults: {schema: a int}\ntopics: {orders: {}}\n"
	section, _, _ := strings.Cut(path, ".")
	var b strings.Builder
	for line := range strings.Lines(good) {
		if !strings.HasPrefix(line, section+":") {
			b.WriteString(line)
		}
	}
	names := strings.Split(path, ".")
	for i, name := range names {
		fmt.Fprintf(&b, "%s%s:", strings.Repeat("  ", i), name)
		if i < len(names)-1 {
			b.WriteByte('\n')
		}
	}
	return b.String() + " " + value + "\n"
}

func asYAML(t *testing.T, text string) string {
	t.Helper()
	out, err := yaml.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	s := strings.TrimSpace(string(out))
	if strings.Contains(s, "\n") {
		return fmt.Sprintf("%q", text)
	}
	return s
}

// credentialTexts have credentials in each form in which a text can have them, also in URLs that no parser accepts.
var credentialTexts = []string{
	"redis://annCanary:s3cr3tCanary@h:1/0?password=s3cr3tCanary",
	"annCanary:s3cr3tCanary@h:1",
	"s3://annCanary:s3cr3tCanary@bucket/p?x=s3cr3tCanary",
	"https://annCanary:s3cr3tCanary@h",
	"http://h?token=s3cr3tCanary",
	"https://annCanary:s3cr3t Canary@h:port/%zz",
	"http://annCanary:s3cr3t#Canary/@[::1",
	"x://s3cr3tCanary@h:1, b:1",
	"annCanary:s3cr3t\"'Canary@h",
	"host=h user=x password=s3cr3tCanary dbname=d",
	"password='s3cr3t Canary' host=h",
	"field:x?api_key=s3cr3tCanary",
}

// TestMasks_Problems writes each text of credentialTexts and of the values below into each key, literally and from
// variables. The problems and the printed configuration must show no part of the credentials.
func TestMasks_Problems(t *testing.T) {
	env := map[string]string{
		"ALONE": secretCanary, "URL": credentialTexts[0], "LIST": "a:1, " + secretCanary + ", b", "PATH_": secretCanary + "//x!" + secretCanary, "LONG": strings.Repeat(secretCanary, 40),
		"COLUMNS": "a " + secretCanary + ", b int", "EMPTY": "",
	}
	values := []string{
		"${ALONE}", `"pre-${ALONE}-post"`, "${URL}", "${LIST}", "${PATH_}", "${LONG}", "${COLUMNS}", `"${EMPTY:-` + secretCanary + `}"`, `"${ALONE-` + secretCanary + `}"`,
		`"a${` + secretCanary + `!"`, "*" + secretCanary, "!" + secretCanary + " x", "[${ALONE}, ${ALONE}]", "{${ALONE}: ${URL}}", "{0: ${ALONE}}",
	}
	for _, text := range credentialTexts {
		values = append(values, asYAML(t, text), "["+asYAML(t, text)+"]")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	problems, printed := 0, 0
	for _, path := range keyPaths() {
		for _, v := range values {
			if strings.HasPrefix(v, "[") && !strings.HasSuffix(path, "brokers") && !strings.HasSuffix(path, "metadata_columns") {
				continue // only the keys brokers and metadata_columns take a list
			}
			if err := os.WriteFile(file, []byte(withKey(path, v)), 0o600); err != nil {
				t.Fatal(err)
			}
			config, all := Load(file, lookup(env))
			for _, p := range all {
				problems++
				if leaks(p.String()) {
					t.Errorf("%s: %s: %s", path, v, p)
				}
			}
			if config == nil || strings.Contains(v, "$") { // values of variables are shown if they are valid, except those of keys for secrets
				continue
			}
			printed++
			var out bytes.Buffer
			if err := errors.Join(config.PrintYAML(&out), encodeValues(&out, config)); err != nil {
				t.Fatal(err)
			}
			if leaks(out.String()) {
				t.Errorf("%s: %s is printed:\n%s", path, v, out.String())
			}
		}
	}
	if problems < 3000 || printed < 10 {
		t.Errorf("%d problems, %d printed configurations: the test lost its keys", problems, printed)
	}
}

// TestMasks_Files: if a file has a broken URL, or the configuration has a secret in place of the name of a file, the
// problems show no part of the credentials.
func TestMasks_Files(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	for _, store := range []string{"redis", "postgres"} {
		for _, text := range append(slices.Clone(credentialTexts),
			"redis://annCanary:s3cr3tCanary@h:port", "redis://:s3cr3t/Canary@h:1", "rediss://annCanary:s3cr3tCanary@h:1/x?db=s3cr3tCanary",
			"postgres://annCanary:s3cr3t%zzCanary@h/d", "postgres://annCanary:s3cr3t/Canary@h/d", "host=h port=s3cr3tCanary", secretCanary,
			"postgres://annCanary:s3cr3tCanary@h/d?sslmode=s3cr3tCanary", "postgres://annCanary:s3cr3tCanary@h/d", "redis://annCanary:s3cr3tCanary@h:1") {
			if err := os.WriteFile(filepath.Join(dir, "url"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, more := range []string{"", ", insecure_plaintext: true"} {
				for _, section := range []string{"members", "fingerprints"} {
					if section == "fingerprints" && store == "redis" {
						continue
					}
					body := withKey("log.level", "info") + section + ": {store: " + store + ", url_file: url" + more + "}\n"
					if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
						t.Fatal(err)
					}
					_, all := Load(file, noEnv)
					for _, p := range all {
						if leaks(p.String()) {
							t.Errorf("%s, %s: %s", section, text, p)
						}
					}
				}
			}
		}
	}
	for _, path := range keyPaths() {
		if !strings.HasSuffix(path, "_file") || strings.HasSuffix(path, "ca_file") || strings.HasSuffix(path, "cert_file") || strings.HasSuffix(path, ".key_file") || path == "health.liveness_file" {
			continue // the problem may show the name of this file, because it is not secret
		}
		text := withKey(path, secretCanary)
		switch section, _, _ := strings.Cut(path, "."); section {
		case "kafka":
			text = strings.Replace(text, "  sasl:", "  brokers: [127.0.0.1:1]\n  sasl:\n    mechanism: "+map[bool]string{true: "oauthbearer", false: "plain\n    username: u"}[strings.HasSuffix(path, "token_file")], 1)
		case "members", "fingerprints":
			text += "  store: postgres\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, all := Load(file, noEnv)
		if config != nil {
			t.Errorf("%s: a file that is not there is accepted", path)
		}
		for _, p := range all {
			if leaks(p.String()) {
				t.Errorf("%s: %s", path, p)
			}
		}
	}
}

// TestMasks_SeedVariables: if an environment variable of the systems that Sluice replaces has credentials in it, the
// problems do not show them.
func TestMasks_SeedVariables(t *testing.T) {
	file, problems := write(t, withKey("log.format", "auto")), 0
	for _, variable := range []string{
		"KAFKA_BOOTSTRAP_SERVERS", "KAFKA_GROUP_ID", "MAX_QUEUED_MESSAGES", "RESUME_THRESHOLD", "PER_KEY_CHANNEL_CAPACITY", "MAX_ACCEPTABLE_LAG",
		SeedTopic, SeedPort, SeedLagEvery, SeedLevel, SeedLevelOfNET,
	} {
		for _, text := range credentialTexts {
			_, all := Load(file, lookup(map[string]string{variable: text}))
			for _, p := range all {
				problems++
				if leaks(p.String()) {
					t.Errorf("%s=%s: %s", variable, text, p)
				}
			}
		}
	}
	if problems < 100 {
		t.Errorf("%d problems", problems)
	}
}

// TestMasks_Values: problems show values that are not secret, so that operators find them in the file.
func TestMasks_Values(t *testing.T) {
	_, problems := Load(write(t, "pipeline: p/q\nkafka: {brokers: [a], session: 7 days, rack: '${RACK}', fetch: {max_wait: '${WAIT}', max_bytes: '${SIZE}'}}\nstorage: {url: file:///data}\n"+
		"defaults: {schema: a int}\ntopics: {orders: {table: '${TABLE}'}}\n"), lookup(map[string]string{"RACK": "r", "WAIT": "12345", "SIZE": "1 MiB", "TABLE": "lake/or!ders"}))
	text := fmt.Sprint(problems)
	// A value may also be a word in the text of a problem. Then the value is masked, and the word is not.
	_, problems = Load(write(t, "pipeline: '${NAME}'\nkafka: {brokers: [a:1], sasl: {mechanism: '${MECHANISM}'}}\nstorage: {url: file:///data}\ndefaults: {schema: a int}\n"),
		lookup(map[string]string{"NAME": "orders", "MECHANISM": "plain"}))
	text += fmt.Sprint(problems)
	for _, want := range []string{
		`"p/q" is not a valid pipeline name`, `"a" has no port: write a:9092`, `"7 days"`, `${WAIT} has no unit: write ${WAIT}s`, `${SIZE} is not a size`,
		"the value of ${TABLE} is not accepted here", "is missing: write topics: {orders: {}} with the name of your topic", "${MECHANISM} needs username: write the user's name",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
