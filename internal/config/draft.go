package config

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Draft is a new configuration file: the keys that differ from their defaults, each with a comment.
type Draft struct {
	head string
	root yaml.Node
}

// NewDraft returns a draft without keys. head is the comment at its top.
func NewDraft(head string) *Draft {
	return &Draft{head: head, root: yaml.Node{Kind: yaml.MappingNode}}
}

// Set sets a key, which is given as the names on its path, below a comment. A value may have variables such as ${NAME}.
func (d *Draft) Set(comment, value string, path ...string) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: value} // without a tag the encoder quotes only texts that need it
	if strings.Contains(value, "\n") {
		n = scalar("!!str", value)
		n.Style = yaml.LiteralStyle
	}
	d.set(comment, n, path)
}

// SetList is [Draft.Set] for a list.
func (d *Draft) SetList(comment string, values []string, path ...string) {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, v := range values {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: v})
	}
	d.set(comment, n, path)
}

// SetPairs is [Draft.Set] for a mapping, whose pairs are sorted by name.
func (d *Draft) SetPairs(comment string, values map[string]string, path ...string) {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		n.Content = append(n.Content, scalar("!!str", name), scalar("!!str", values[name]))
	}
	d.set(comment, n, path)
}

func (d *Draft) set(comment string, value *yaml.Node, path []string) {
	at, last := &d.root, len(path)-1
	for _, name := range path[:last] {
		at = child(at, name)
	}
	key := scalar("!!str", path[last])
	key.HeadComment = "# " + comment
	for i := 0; i+1 < len(at.Content); i += 2 {
		if at.Content[i].Value == path[last] {
			at.Content[i], at.Content[i+1] = key, value
			return
		}
	}
	at.Content = append(at.Content, key, value)
}

// Text returns the draft as the content of a file.
func (d *Draft) Text() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(d.head + "\n\n")
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&d.root); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return b.Bytes(), nil
}

// Literal returns a text as the value of a key that holds the text as it is, although it may look like a variable.
func Literal(text string) string { return strings.ReplaceAll(text, "${", "$${") }

// Parse checks the content of a file, which need not exist at path, like [Load].
func Parse(path string, content []byte, env func(string) (string, bool)) (*Config, []Problem) {
	l := &loader{file: path, env: env, config: Default()}
	l.config.file = path
	return l.load(content)
}

// ParseConnection is [Parse] for a file that has no topics yet. The Config can open connections.
func ParseConnection(path string, content []byte, env func(string) (string, bool)) (*Config, []Problem) {
	l := &loader{file: path, env: env, config: Default(), withoutTopics: true}
	l.config.file = path
	return l.load(content)
}

// connectionComments has a comment for each key that says how to connect.
var connectionComments = map[string]string{
	"kafka.brokers":                  "The brokers to contact first.",
	"kafka.group":                    "The consumer group, whose committed offsets are a hint for tools.",
	"kafka.rack":                     "The rack of this member: it fetches from a replica there.",
	"kafka.session":                  "How long the group waits for a heartbeat of a member.",
	"kafka.offset_commit_interval":   "The interval between two writes of committed offsets.",
	"kafka.fetch.max_bytes":          "The maximum size of one fetch response.",
	"kafka.fetch.max_wait":           "How long a broker may wait for records before it responds.",
	"kafka.tls.enabled":              "Encryption, TLS 1.2 or 1.3.",
	"kafka.tls.ca_file":              "The certificate authorities that may sign the brokers' certificates.",
	"kafka.tls.cert_file":            "The client certificate, for brokers that demand one.",
	"kafka.tls.key_file":             "The key of the client certificate.",
	"kafka.tls.server_name":          "The host name in the brokers' certificates.",
	"kafka.tls.insecure_skip_verify": "Any certificate of a broker is accepted: for tests only.",
	"kafka.sasl.mechanism":           "How the connector authenticates.",
	"kafka.sasl.username":            "The user name.",
	"kafka.sasl.password":            "The variable of the environment that has the password.",
	"kafka.sasl.password_file":       "The file that has the password, read again for each authentication.",
	"kafka.sasl.token_file":          "The file that has the token, read again for each authentication.",
	"kafka.sasl.insecure_plaintext":  "The secret may be sent without TLS: anyone on the network path can read it.",
	"storage.url":                    "The folder of all tables.",
	"storage.s3.endpoint":            "The address of the S3 server.",
	"storage.s3.region":              "The region of the bucket.",
	"storage.s3.path_style":          "The bucket is in the path instead of the host name, as most servers but AWS need it.",
	"storage.s3.ca_file":             "The certificate authorities that may sign the endpoint's certificate.",
	"storage.s3.insecure_plaintext":  "An endpoint without TLS is allowed: anyone on the network path can read the records.",
	"storage.s3.timeout":             "The longest time in which a request may transfer no byte.",
	"storage.s3.access_key":          "The variable of the environment that has the access key.",
	"storage.s3.access_key_file":     "The file that has the access key.",
	"storage.s3.secret_key":          "The variable of the environment that has the secret key.",
	"storage.s3.secret_key_file":     "The file that has the secret key.",
}

// onlyVariable matches a value that is a variable without a default.
var onlyVariable = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)

// SetConnection sets a key of the sections kafka and storage to a text as it may stand in a file. It does nothing if the
// text is the default. It refuses other keys, and a secret that is not a variable, so that no file has it.
func (d *Draft) SetConnection(path, text string) error {
	keys := Default().keys()
	i := slices.IndexFunc(keys, func(k key) bool { return k.path == path })
	comment, known := connectionComments[path]
	if i < 0 || !known {
		var all []string
		for _, k := range keys {
			if _, ok := connectionComments[k.path]; ok {
				all = append(all, k.path)
			}
		}
		if meant := nearest(path, all, nil); meant != "" {
			return fmt.Errorf("%s is no key of the connection: did you mean %s?", path, meant)
		}
		return fmt.Errorf("%s is no key of the sections kafka and storage: write others into the file", path)
	}
	k := keys[i]
	if k.secret && !onlyVariable.MatchString(text) {
		return fmt.Errorf("%s is a secret, and no file shall have it: write '${NAME}' with the name of a variable, or set %s_file", path, path)
	}
	if !strings.Contains(text, "${") {
		before := k.node().Value
		values := []string{text}
		if k.list {
			values = splitList(text)
		}
		if err := k.set(values); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if !k.list && k.node().Value == before {
			return nil
		}
	}
	if k.list {
		d.SetList(comment, splitList(text), strings.Split(path, ".")...)
		return nil
	}
	d.Set(comment, text, strings.Split(path, ".")...)
	return nil
}
