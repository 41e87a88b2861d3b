package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// This file checks the texts of single keys. The errors say what to write instead.

func pipelineName(s string) error {
	if !legalName(s, 100) {
		return fmt.Errorf("%q is not a valid pipeline name: write 1 to 100 of letters, digits, dot, underscore and dash", s)
	}
	return nil
}

// legalName applies Kafka's rule for topic names (Topic.validate). Names of pipelines and patterns follow it, too.
func legalName(s string, longest int) bool {
	return s != "" && s != "." && s != ".." && len(s) <= longest && madeOf(s, letters+digits+"._-")
}

const (
	lowerCase = "abcdefghijklmnopqrstuvwxyz"
	letters   = lowerCase + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits    = "0123456789"
)

// madeOf reports whether s has only characters of the set.
func madeOf(s, set string) bool {
	return strings.Trim(s, set) == "" // Trim would stop at a character that is not in the set
}

func topicName(s string) error {
	switch {
	case strings.HasPrefix(s, "__"):
		return errors.New("is an internal topic of Kafka or its tools: remove it")
	case legalName(s, 249):
		return nil
	case strings.ContainsAny(s, `*?[](){}|\^$+`):
		return errors.New("is not a valid topic name: for a pattern write a name of your choice, and write pattern: and deny: below it")
	}
	return errors.New("is not a valid topic name: write 1 to 249 of letters, digits, dot, underscore and dash")
}

func groupName(s string) error {
	if len(s) > 255 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		return errors.New("is not a valid group name: write at most 255 printable characters")
	}
	return nil
}

func brokerAddress(s string) error {
	if _, rest, ok := strings.Cut(s, "://"); ok {
		return fmt.Errorf("%q has a scheme: write %s", s, rest)
	}
	if strings.ContainsAny(s, ", \t\n") {
		return fmt.Errorf("%q is not one address: write a list, such as [kafka-1:9092, kafka-2:9092]", s)
	}
	host, port, err := net.SplitHostPort(s)
	switch {
	case err != nil && s != "" && !strings.Contains(s, ":"):
		return fmt.Errorf("%q has no port: write %s:9092", s, s)
	case err != nil || host == "":
		return fmt.Errorf("%q is not an address: write host:port, such as kafka-1:9092", s)
	}
	return portNumber(s, port, 1)
}

func portNumber(s, port string, low int) error {
	if n, err := strconv.Atoi(port); err != nil || n < low || n > 65535 {
		return fmt.Errorf("%q has no valid port: write a number from %d to 65535 after the colon", s, low)
	}
	return nil
}

func listenAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		if _, err := strconv.Atoi(s); err == nil {
			return fmt.Errorf("%q is only a port: write %q", s, ":"+s)
		}
		return fmt.Errorf("%q is not an address to listen on: write host:port or :port, such as :8080", s)
	}
	return portNumber(s, port, 0)
}

func storageURL(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return errors.New("is not a URL: write s3://bucket/prefix, or file:///dir")
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("%s takes neither credentials nor options: write only s3://bucket/prefix, or file:///dir", u.Redacted())
	}
	switch u.Scheme {
	case "s3":
		return bucketURL(s, u)
	case "s3a", "s3n":
		return fmt.Errorf("%q is Hadoop's scheme: write s3://%s%s", s, u.Host, u.EscapedPath())
	case "file":
		if u.Host != "" {
			return fmt.Errorf("%q has only two slashes, which makes %q a host: write file:///%s%s", s, u.Host, u.Host, u.EscapedPath())
		}
		if !filepath.IsAbs(filepath.FromSlash(u.Path)) || filepath.Clean(u.Path) == "/" {
			return fmt.Errorf("%q names no directory: write file:///dir with an absolute path", s)
		}
		return nil
	case "gs", "abfss", "abfs", "wasbs", "az", "hdfs":
		return fmt.Errorf("%q: %s is not supported: write s3://bucket/prefix, or file:///dir", s, u.Scheme)
	}
	return fmt.Errorf("%q has no known scheme: write s3://bucket/prefix, or file:///dir", s)
}

func bucketURL(s string, u *url.URL) error {
	bucket := u.Host
	if len(bucket) < 3 || len(bucket) > 63 || !madeOf(bucket, lowerCase+digits+".-") {
		return fmt.Errorf("%q has no valid bucket name: write s3://bucket/prefix, a bucket has 3 to 63 of a-z, 0-9, dot and dash", s)
	}
	for p := range strings.SplitSeq(strings.Trim(u.Path, "/"), "/") {
		if p == "" && strings.Trim(u.Path, "/") != "" || p == "." || p == ".." {
			return fmt.Errorf("%q has an empty part or dots in its path: write s3://bucket/prefix", s)
		}
	}
	return nil
}

func endpointURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("is not a URL: write http:// or https://, host and port, such as http://127.0.0.1:9000")
	case u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is not an endpoint: write http:// or https://, host and port, such as http://127.0.0.1:9000", s)
	case u.User != nil:
		return fmt.Errorf("%s has credentials in it: write them as access_key and secret_key", u.Redacted())
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q has more than an address: write %s://%s, and the bucket in storage.url", s, u.Scheme, u.Host)
	}
	return nil
}

// tablePath fills the topic into the template of a table's path and checks the path.
func tablePath(template, topic string) (string, error) {
	path := strings.ReplaceAll(template, "{topic}", topic)
	if i := strings.IndexAny(path, "{}"); i >= 0 {
		return "", fmt.Errorf("%q has an unknown placeholder: write {topic}, the only one", template)
	}
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "":
			return "", fmt.Errorf("%q has an empty part: write a path below storage.url, such as {topic} or bronze/{topic}", template)
		case part == "_sluice" || part == "_delta_log":
			return "", fmt.Errorf("%q: the name %s is reserved: write another one", template, part)
		case !legalName(part, 249):
			return "", fmt.Errorf("%q: %q is not a valid part of a table's path: write letters, digits, dot, underscore and dash", template, part)
		}
	}
	return path, nil
}
