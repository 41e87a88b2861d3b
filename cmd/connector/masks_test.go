package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestMasks_Commands runs every command that has the flag --config with a configuration full of credentials and
// mistakes. The output must name a mistake, and contain no credential.
func TestMasks_Commands(t *testing.T) {
	var body strings.Builder
	body.WriteString("pipeline: x://annCanary:s3cr3tCanary@h\n")
	body.WriteString("kafka: {brokers: ['SASL_SSL://annCanary:s3cr3tCanary@h:1'], session: s3cr3tCanary@1, sasl: {mechanism: plain, password: s3cr3tCanary, password_file: s3cr3tCanary}}\n")
	body.WriteString("storage: {url: 's3://annCanary:s3cr3tCanary@bucket/%zz', s3: {endpoint: 'https://annCanary:s3cr3tCanary@h:x', secret_key: s3cr3tCanary, secret_key_file: s3cr3tCanary}}\n")
	body.WriteString("members: {store: redis, url_file: s3cr3tCanary}\nfingerprints: {store: postgres, url_file: 'password=s3cr3tCanary'}\n")
	file := write(t, body.String())
	arguments := map[string][]string{
		"deadletters show": {"orders:0@1"}, "deadletters replay": {"orders:0@1"}, "deadletters discard": {"orders:0@1"},
		"deadletters acknowledge": {"orders:0@1"}, "deadletters reopen": {"orders:0@1"}, "deadletters peek": {"orders:0@1"}, "deadletters allow": {"orders"}, "pause": {"orders"}, "resume": {"orders"}, "flush": {"orders"},
		"offsets adopt": {"orders", "--from", "group"}, "offsets set": {"orders:0", "1"}, "offsets start": {"orders"}, "offsets accept-gap": {"orders"}, "offsets skip": {"orders:0@1"},
		"fingerprints reset": {"orders"}, "schema propose": {"orders"}, "table schema apply": {"orders"},
	}
	seen := 0
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		for _, sub := range cmd.Commands() {
			walk(sub, append(slices.Clone(path), sub.Name()))
		}
		if cmd.Flags().Lookup("config") == nil || !cmd.Runnable() {
			return
		}
		name := strings.Join(path, " ")
		t.Run(name, func(t *testing.T) {
			args := append(slices.Clone(path), arguments[name]...)
			if cmd.Flags().Lookup("operator") != nil {
				args = append(args, "--reason", "a test", "--operator", "ann", "--yes")
			}
			code, stdout, stderr := connectorRun(t, append(args, "--config", file)...)
			if strings.Contains(stdout+stderr, "Canary") {
				t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
			}
			if !strings.Contains(stdout+stderr, "storage.s3.endpoint") {
				t.Errorf("exit code %d: the configuration was not read: %s%s", code, stdout, stderr)
			}
			seen++
		})
	}
	walk((&cli{}).root(), nil)
	if seen < 15 {
		t.Errorf("%d commands ran", seen)
	}
}
