package ops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// longestText is the largest size in bytes of a text in a response: errors of dependencies may quote whole pages.
const longestText = 2 << 10

var (
	// userinfo is the user and password of an address.
	userinfo = regexp.MustCompile(`://[^\s"'<>]*@`)
	// secret is a parameter that must not be seen: of a connection string, of a signed address, of JSON, of a printed
	// struct.
	secret = regexp.MustCompile(`(?i)((?:password|passwd|passphrase|pwd|secret|secret[_-]?(?:access[_-]?)?key|access[_-]?key(?:[_-]?id)?|` +
		`api[_-]?key|token|x-amz-credential|signature|\bsig)(?:\s*=\s*|["']\s*:\s*|:))` +
		`("[^"]*"|'[^']*'|[^\s,;&"'\]})]+)`)
	// bearer is the value of an Authorization header.
	bearer = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9+/_.=~-]{8,}`)
)

// clean returns a text without secrets and of bounded length, for all who can reach the port.
func clean(text string) string {
	if len(text) <= longestText && !strings.ContainsAny(text, "=: ") { // most texts of an answer are a name or a word
		return text
	}
	whole := len(text)
	text = begin(text)
	text = userinfo.ReplaceAllString(text, "://***@")
	text = bearer.ReplaceAllString(text, "$1 ***")
	text = secret.ReplaceAllString(text, "$1***")
	if len(text) <= longestText && whole <= 4*longestText {
		return text
	}
	end := min(longestText, len(text))
	for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s… (cut, of %d bytes)", text[:end], whole)
}

// begin returns the start of a text, which clean searches for secrets. It does not end within an address: clean would
// not recognize the secrets in a part of one.
func begin(text string) string {
	if len(text) <= 4*longestText {
		return text
	}
	text = text[:4*longestText]
	if blank := strings.LastIndexByte(text, ' '); blank > 0 {
		return text[:blank]
	}
	text, _, _ = strings.Cut(text, "://")
	return text
}

// CleanJSON returns a JSON text in which every string is free of secrets and of bounded length. All responses of the
// servers pass through it, so that a new field needs no thought.
func CleanJSON(body []byte) []byte {
	var out bytes.Buffer
	known := map[string][]byte{} // keyed by literal, because the texts of thousands of held partitions are mostly the same
	for rest := body; len(rest) > 0; {
		begin := bytes.IndexByte(rest, '"')
		if begin < 0 {
			out.Write(rest)
			break
		}
		end := begin + 1
		for rest[end] != '"' { // the text ends with a quote: it is JSON that this program wrote
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		literal := rest[begin : end+1]
		out.Write(rest[:begin])
		text, met := known[string(literal)]
		if !met {
			text = cleanText(literal)
			known[string(literal)] = text
		}
		out.Write(text)
		rest = rest[end+1:]
	}
	return out.Bytes()
}

func cleanText(literal []byte) []byte {
	var text string
	if json.Unmarshal(literal, &text) != nil {
		return literal
	}
	cleaned := clean(text)
	if cleaned == text {
		return literal
	}
	b, err := json.Marshal(cleaned)
	if err != nil { // cannot happen: a string can always be written
		return []byte(`""`)
	}
	return b
}
