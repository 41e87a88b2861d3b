package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// value parses the texts of a key's YAML scalars into a field of the Config, and formats the field as YAML.
type value struct {
	// allowed says in a few words which texts are allowed.
	allowed string
	list    bool
	pairs   bool // a mapping is also allowed; its texts are "key: value"
	secret  bool
	// set parses the texts and stores the value. It takes exactly one text unless list or pairs is true. On an error,
	// which says what to write, the old value stays.
	set  func(texts []string) error
	node func() *yaml.Node
}

func scalar(tag, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
}

// one returns the value of a key that takes a single scalar. It parses the text with parse into p, and formats p with
// format. tag is the YAML tag of the formatted scalar: it makes the encoder quote a text such as "1", which would
// otherwise be read as another type.
func one[T any](p *T, allowed, tag string, parse func(string) (T, error), format func(T) string) value {
	return value{
		allowed: allowed,
		set: func(texts []string) error {
			v, err := parse(texts[0])
			if err == nil {
				*p = v
			}
			return err
		},
		node: func() *yaml.Node { return scalar(tag, format(*p)) },
	}
}

// text returns a value that accepts the texts that check accepts; check may be nil.
func text(p *string, check func(string) error) value {
	return one(p, "text", "!!str", func(s string) (string, error) {
		if check != nil {
			if err := check(s); err != nil {
				return "", err
			}
		}
		return s, nil
	}, func(s string) string { return s })
}

func secret(p *Secret) value {
	v := one(p, "secret", "!!str", func(s string) (Secret, error) { return Secret(s), nil }, Secret.String)
	v.secret = true
	return v
}

// choice returns a value that accepts one of the words in now. For a word in later, the error says that only a later
// version accepts it.
func choice(p *string, later []string, now ...string) value {
	return one(p, strings.Join(now, " | "), "!!str", func(s string) (string, error) {
		switch {
		case slices.Contains(now, s):
			return s, nil
		case slices.Contains(later, s):
			return "", fmt.Errorf("%s comes in a later version: write %s", s, oneOf(now))
		}
		for _, w := range now {
			if strings.EqualFold(s, w) {
				return "", fmt.Errorf("%q must be lower case: write %s", s, w)
			}
		}
		return "", fmt.Errorf("%q is unknown: write %s", s, oneOf(now))
	}, func(s string) string { return s })
}

func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func boolean(p *bool) value {
	return one(p, "true | false", "!!bool", func(s string) (bool, error) {
		switch s {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return false, fmt.Errorf("%q is not true or false: write true or false", s)
	}, strconv.FormatBool)
}

func count[T int | int64](p *T, low, high T) value {
	allowed := fmt.Sprintf("number from %d to %d", low, high)
	return one(p, allowed, "!!int", func(s string) (T, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return 0, outOfRange(s, allowed)
		case err != nil:
			if plain := strings.NewReplacer("_", "", ",", "", " ", "").Replace(s); plain != s {
				if _, err := strconv.ParseInt(plain, 10, 64); err == nil {
					return 0, fmt.Errorf("%q is not a plain number: write %s", s, plain)
				}
			}
			return 0, fmt.Errorf("%q is not a number: write a whole number such as %d", s, *p)
		case n < int64(low) || n > int64(high):
			return 0, outOfRange(s, allowed)
		}
		return T(n), nil
	}, func(n T) string { return strconv.FormatInt(int64(n), 10) })
}

func outOfRange(text, allowed string) error {
	return fmt.Errorf("%s is out of range: write a %s", text, allowed)
}

func duration(p *time.Duration, low, high time.Duration) value {
	allowed := "duration from " + FormatDuration(low) + " to " + FormatDuration(high)
	return one(p, allowed, "!!str", func(s string) (time.Duration, error) {
		d, err := parseDuration(s, *p)
		if err == nil && (d < low || d > high) {
			err = outOfRange(s, allowed)
		}
		return d, err
	}, FormatDuration)
}

func parseDuration(s string, example time.Duration) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("%q has no unit: write %ss, or another unit (ms, s, m, h)", s, s)
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 32); err == nil {
			return 0, fmt.Errorf("%q is in days: write %dh", s, n*24)
		}
	}
	return 0, fmt.Errorf("%q is not a duration: write a number with its unit (ms, s, m, h), such as %s", s, FormatDuration(example))
}

// FormatDuration formats a duration without zero units: 1m, not 1m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// units of sizes, the largest first.
var units = [...]struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func size(p *int64, low, high int64) value {
	allowed := "size from " + FormatSize(low) + " to " + FormatSize(high)
	return one(p, allowed, "!!str", func(s string) (int64, error) {
		n, err := parseSize(s, *p)
		if err == nil && (n < low || n > high) {
			err = outOfRange(s, allowed)
		}
		return n, err
	}, FormatSize)
}

// sizeOrAuto returns a value that accepts a size, or the word auto for 0.
func sizeOrAuto(p *int64, low, high int64) value {
	v := size(p, low, high)
	set := v.set
	v.allowed = "auto, or " + v.allowed
	v.set = func(texts []string) error {
		if texts[0] == "auto" {
			*p = 0
			return nil
		}
		return set(texts)
	}
	node := v.node
	v.node = func() *yaml.Node {
		if *p == 0 {
			return scalar("!!str", "auto")
		}
		return node()
	}
	return v
}

func parseSize(s string, example int64) (int64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 {
			break
		}
		if n > (1<<62)/u.bytes {
			return 0, fmt.Errorf("%s is out of range: write a smaller size", s)
		}
		return n * u.bytes, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return 0, fmt.Errorf("%q has no unit: write %s", s, FormatSize(n))
	}
	for _, wrong := range []string{"KB", "kB", "MB", "GB", "K", "k", "M", "G", "Ki", "Mi", "Gi"} {
		if number, ok := strings.CutSuffix(s, wrong); ok {
			if n, err := strconv.ParseInt(number, 10, 32); err == nil && n >= 0 {
				return 0, fmt.Errorf("%q has the unit %s: write %d%siB", s, wrong, n, strings.ToUpper(wrong[:1]))
			}
		}
	}
	return 0, fmt.Errorf("%q is not a size: write a whole number with its unit (B, KiB, MiB, GiB), such as %s", s, FormatSize(example))
}

// FormatSize formats a number of bytes in the largest unit that divides it.
func FormatSize(n int64) string {
	for _, u := range units {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

func percent(p *float64, low, high float64) value {
	allowed := "percentage from " + formatPercent(low) + " to " + formatPercent(high)
	return one(p, allowed, "!!str", func(s string) (float64, error) {
		number, ok := strings.CutSuffix(s, "%")
		f, err := strconv.ParseFloat(number, 64)
		switch {
		case err != nil || math.IsNaN(f):
			return 0, fmt.Errorf("%q is not a percentage: write a number and %%, such as %s", s, formatPercent(*p))
		case !ok && f > 0 && f <= 1:
			return 0, fmt.Errorf("%q has no %%: write %s", s, formatPercent(f))
		case !ok:
			return 0, fmt.Errorf("%q has no %%: write %s%%", s, s)
		case f/100 < low || f/100 > high:
			return 0, outOfRange(s, allowed)
		}
		return f / 100, nil
	}, formatPercent)
}

func formatPercent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e8)/1e6, 'f', -1, 64) + "%"
}

// list returns a value that accepts a list of different texts, each of which check accepts.
func list(p *[]string, element string, check func(string) error) value {
	return value{
		allowed: "list of " + element,
		list:    true,
		set: func(texts []string) error {
			if len(texts) == 0 {
				return fmt.Errorf("is empty: write a list of %s", element)
			}
			seen := map[string]bool{}
			for _, t := range texts {
				if err := check(t); err != nil {
					return err
				}
				if seen[t] {
					return fmt.Errorf("%q is given twice: remove one", t)
				}
				seen[t] = true
			}
			*p = texts
			return nil
		},
		node: func() *yaml.Node {
			n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
			for _, t := range *p {
				n.Content = append(n.Content, scalar("!!str", t))
			}
			return n
		},
	}
}

// listOrNone is [list] for a list that may be empty.
func listOrNone(p *[]string, element string, check func(string) error) value {
	v := list(p, element, check)
	set := v.set
	v.set = func(texts []string) error {
		if len(texts) > 0 {
			return set(texts)
		}
		*p = nil
		return nil
	}
	return v
}
