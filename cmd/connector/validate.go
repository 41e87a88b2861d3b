package main

import (
	"cmp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) validateCommand() *cobra.Command {
	var withoutSecrets bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration file",
		Long: `Checks the configuration file and the environment without a connection to Kafka
or the store. Lists all problems, with their lines and what to write instead.
Exit code 2 if there is a problem; 0 if there are only warnings.

With --no-secrets it runs where secrets are missing, such as in CI: it accepts
unset variables without a default, and missing files of secrets and
certificates, and lists them as not checked.`,
		Example: `  connector validate --no-secrets --config deploy/config.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return c.validate(withoutSecrets) },
	}
	cmd.Flags().BoolVar(&withoutSecrets, "no-secrets", false, "accept missing variables and files of secrets")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

func (c *cli) validate(withoutSecrets bool) error {
	var cfg *config.Config
	var problems, unchecked []config.Problem
	if withoutSecrets {
		cfg, problems, unchecked = config.CheckWithoutSecrets(c.config, c.env)
	} else {
		cfg, problems = config.Load(c.config, c.env)
	}
	if c.output == "json" {
		if problems == nil {
			problems = []config.Problem{}
		}
		report := map[string]any{"valid": cfg != nil, "problems": problems}
		if withoutSecrets {
			report["unchecked"] = append([]config.Problem{}, unchecked...)
		}
		if err := writeJSON(c.stdout, report); err != nil {
			return err
		}
		if cfg == nil {
			return fail.Usage(nil)
		}
		return nil
	}
	for _, p := range slices.Concat(problems, unchecked) {
		if _, err := terminal.Printf(c.stderr, "%s\n", p); err != nil {
			return err
		}
	}
	if cfg == nil {
		return fail.Usage(nil)
	}
	return c.sayValid(cfg)
}

// sayValid prints the topics, tables and dead-letter topics of a valid configuration.
func (c *cli) sayValid(cfg *config.Config) error {
	names := cfg.TopicNames()
	if len(names) == 1 && len(cfg.Patterns) == 0 {
		_, err := terminal.Printf(c.stdout, "%s: ok: topic %s goes to %s as %s\n", c.config, names[0], cfg.TableURL(cfg.Topics[names[0]]), config.WithoutPasswords(cfg.Kafka.Group))
		if err != nil {
			return err
		}
		return cmp.Or(c.sayInferred(cfg), c.sayLetters(cfg))
	}
	if _, err := terminal.Printf(c.stdout, "%s: ok: %s and %s as %s\n", c.config, admin.Counting(int64(len(names)), "topic"), admin.Counting(int64(len(cfg.Patterns)), "pattern"), config.WithoutPasswords(cfg.Kafka.Group)); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	for _, name := range names {
		_, _ = terminal.Printf(tw, "%s\t%s\n", name, cfg.TableURL(cfg.Topics[name])) // Flush returns the error
	}
	for _, p := range cfg.Patterns {
		_, _ = terminal.Printf(tw, "%s\t%s\n", p.Pattern, cfg.TableURL(p.Topic))
	}
	return cmp.Or(tw.Flush(), c.sayInferred(cfg), c.sayLetters(cfg))
}

// sayInferred prints the topics without a declared schema.
func (c *cli) sayInferred(cfg *config.Config) error {
	var names []string
	for _, name := range cfg.TopicNames() {
		if t := cfg.Topics[name]; t.Infers() {
			names = append(names, name)
		}
	}
	for _, p := range cfg.Patterns {
		if p.Infers() {
			names = append(names, p.Pattern)
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err := terminal.Printf(c.stdout, "columns: inferred from the records of %s\n", strings.Join(names, ", "))
	return err
}

// sayLetters prints the dead-letter topics and letter tables.
func (c *cli) sayLetters(cfg *config.Config) error {
	tw := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	say := func(t *config.Topic, name, topic, table string) {
		switch {
		case !t.WritesLetters():
		case !t.Archives():
			_, _ = terminal.Printf(tw, "dead letters of %s\ttopic %s\t-\n", name, topic) // Flush returns the error
		default:
			_, _ = terminal.Printf(tw, "dead letters of %s\ttopic %s\t%s\n", name, topic, cfg.TableURL(config.Topic{Table: table}))
		}
	}
	for _, name := range cfg.TopicNames() {
		t := cfg.Topics[name]
		topic := strings.ReplaceAll(t.DeadLetters.Topic, config.TopicPlaceholder, name)
		letters, _, _ := cfg.Route(topic) // no error is possible, because the configuration was checked
		say(&t, name, topic, letters.Table)
	}
	for _, p := range cfg.Patterns {
		say(&p.Topic, p.Pattern, p.DeadLetters.Topic, p.DeadLetters.Archive)
	}
	return tw.Flush()
}
