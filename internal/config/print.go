package config

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// setting is one key with the value that is in force, and its origin.
type setting struct {
	path   []string // a list, because the name of a topic may contain dots
	node   *yaml.Node
	origin string
}

// settings returns the keys with their values in force, in the order of the shipped file. It leaves out keys that
// follow from format: dead_letter.
func (c *Config) settings() []setting {
	var all, last []setting
	for _, k := range c.keys() {
		s := setting{strings.Split(k.path, "."), shownNode(k), c.origins[k.path].String()}
		if s.path[0] == "health" || s.path[0] == "shutdown" { // the shipped file has these sections after the topics
			last = append(last, s)
		} else {
			all = append(all, s)
		}
	}
	topic := func(t *Topic, keys []key, path []string, inherit bool) {
		for _, k := range keys {
			if t.IsLetters() && !ofLetters(k.path) {
				continue // the value follows from the format
			}
			own, known := c.origins[strings.Join(path, ".")+"."+k.path]
			origin := own.String()
			if base, set := c.origins["defaults."+k.path]; !known && inherit && set {
				origin = "defaults, " + base.String()
			}
			if k.path == "schema" && t.SchemaFile != "" {
				origin += ", read from " + t.SchemaFile
			}
			if k.path == "dead_letters.archive" && len(path) > 1 {
				origin += c.archiveNote(path[1], t)
			}
			all = append(all, setting{append(slices.Clone(path), strings.Split(k.path, ".")...), shownNode(k), origin})
		}
	}
	topic(&c.Defaults, c.Defaults.keys(), []string{"defaults"}, false)
	for _, name := range c.TopicNames() {
		t := c.Topics[name]
		topic(&t, t.keys(), []string{"topics", name}, true)
	}
	for _, p := range c.Patterns {
		topic(&p.Topic, p.keys(), []string{"topics", p.Name}, true)
	}
	return append(all, last...)
}

// shownNode returns the value of a key for printing. It hides passwords, which the text of any key can contain.
func shownNode(k key) *yaml.Node {
	n := k.node()
	if k.path == "schema" { // DDL may have free text in comments, so it is shown unchanged
		return n
	}
	n.Value = WithoutPasswords(n.Value)
	for _, element := range n.Content {
		element.Value = WithoutPasswords(element.Value)
	}
	return n
}

// PrintYAML writes the configuration in force as a config.yaml without secrets. The comment of each value is its
// origin.
func (c *Config) PrintYAML(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range c.settings() {
		at := root
		for _, name := range s.path[:len(s.path)-1] {
			at = child(at, name)
		}
		last := scalar("!!str", s.path[len(s.path)-1])
		if strings.Contains(s.node.Value, "\n") { // a value of several lines has no room for a comment
			last.HeadComment, s.node.Style = "# "+s.origin, yaml.LiteralStyle
		} else {
			s.node.LineComment = "# " + s.origin
		}
		at.Content = append(at.Content, last, s.node)
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return e.Close()
}

// child returns the mapping under a name, and creates it if there is none.
func child(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	m := &yaml.Node{Kind: yaml.MappingNode}
	n.Content = append(n.Content, scalar("!!str", name), m)
	return m
}

// Value is one key with its value in force and its origin.
type Value struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

// Values returns the content of PrintYAML, key by key.
func (c *Config) Values() (all []Value, err error) {
	for _, s := range c.settings() {
		v := Value{Key: strings.Join(s.path, "."), Origin: s.origin}
		if err := s.node.Decode(&v.Value); err != nil {
			return nil, fmt.Errorf("key %s: %w", v.Key, err)
		}
		all = append(all, v)
	}
	return all, nil
}
