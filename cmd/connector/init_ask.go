package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/fail"
	"sluice/internal/terminal"
)

// ask prints a question with its default answer, and returns the answer.
func (c *cli) ask(ctx context.Context, question, otherwise string) (string, error) {
	if otherwise != "" {
		question += " [" + otherwise + "]"
	}
	if _, err := terminal.Printf(c.stderr, "%s: ", question); err != nil {
		return "", err
	}
	answer, err := c.readLine(ctx)
	if err != nil {
		return "", fail.Refused(fmt.Errorf("nothing was written: no answer: %w", err))
	}
	if answer == "" {
		return otherwise, nil
	}
	return answer, nil
}

// askAgain prints why the answers of a person do not work, and returns nil. If the values come from flags, it returns the
// error.
func (c *cli) askAgain(asked bool, err error) error {
	if !asked {
		return err
	}
	_, printing := terminal.Printf(c.stderr, "%v\n", err)
	return printing
}

// askKafkaSecurity asks how to connect to a cluster that does not accept plaintext connections.
func (c *cli) askKafkaSecurity(ctx context.Context, o *setup) error {
	add := func(key, value string) { o.Keys = append(o.Keys, [2]string{key, value}) }
	tls, err := c.ask(ctx, "TLS? y or n", "n")
	if err != nil {
		return err
	}
	if strings.HasPrefix(strings.ToLower(tls), "y") {
		add("kafka.tls.enabled", "true")
		file, err := c.ask(ctx, "File with the certificate authorities (empty: those of the system)", "")
		if err != nil {
			return err
		}
		if file != "" {
			add("kafka.tls.ca_file", file)
		}
	}
	mechanism, err := c.ask(ctx, "SASL: none, plain, scram-sha-256 or scram-sha-512", "none")
	if err != nil || mechanism == "none" {
		return err
	}
	add("kafka.sasl.mechanism", mechanism)
	name, err := c.ask(ctx, "User name", "")
	if err != nil {
		return err
	}
	add("kafka.sasl.username", name)
	return c.askVariable(ctx, o, "kafka.sasl.password", "Variable of the environment that has the password", "KAFKA_PASSWORD")
}

// askVariable asks for the variable that has a secret, which the file then names. An empty answer sets no key.
func (c *cli) askVariable(ctx context.Context, o *setup, key, question, otherwise string) error {
	name, err := c.ask(ctx, question, otherwise)
	if err == nil && name != "" {
		o.Keys = append(o.Keys, [2]string{key, "${" + strings.Trim(name, "${}") + "}"})
	}
	return err
}

// askStore asks for the folder of the tables, and for the S3 server if it is a bucket.
func (c *cli) askStore(ctx context.Context, o *setup, given [][2]string) (err error) {
	otherwise := o.Storage
	if dir, err := filepath.Abs("lake"); err == nil && otherwise == "" {
		otherwise = (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
	}
	if o.Storage, err = c.ask(ctx, "Folder of the tables, s3://bucket/prefix or file:///dir", otherwise); err != nil {
		return err
	}
	o.Keys = slices.Clone(given)
	if !strings.HasPrefix(o.Storage, "s3:") || o.has("storage.s3.endpoint") {
		return nil
	}
	endpoint, err := c.ask(ctx, "Address of the S3 server, such as http://127.0.0.1:9000 (empty: AWS)", "")
	if err != nil {
		return err
	}
	if endpoint != "" {
		o.Keys = append(o.Keys, [2]string{"storage.s3.endpoint", endpoint})
	}
	region, err := c.ask(ctx, "Region (empty: from the environment)", "")
	if err != nil {
		return err
	}
	if region != "" {
		o.Keys = append(o.Keys, [2]string{"storage.s3.region", region})
	}
	before := len(o.Keys)
	if err := c.askVariable(ctx, o, "storage.s3.access_key", "Variable of the environment that has the access key (empty: the default chain of AWS)", ""); err != nil || len(o.Keys) == before {
		return err
	}
	return c.askVariable(ctx, o, "storage.s3.secret_key", "Variable of the environment that has the secret key", "AWS_SECRET_ACCESS_KEY")
}

// has reports whether a key of the sections kafka and storage is set.
func (o *setup) has(key string) bool {
	return slices.ContainsFunc(o.Keys, func(k [2]string) bool { return k[0] == key })
}

// addPathStyle sets path_style for an S3 server that is not AWS, unless --set says otherwise: few of them have a host name
// for each bucket.
func (o *setup) addPathStyle() {
	const style = "storage.s3.path_style"
	for _, k := range o.Keys {
		if k[0] == "storage.s3.endpoint" && !strings.Contains(k[1], "amazonaws.com") && !o.has(style) {
			o.Keys = append(o.Keys, [2]string{style, "true"})
			return
		}
	}
}
