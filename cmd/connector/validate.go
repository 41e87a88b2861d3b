package main

import (
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func (c *cli) validateCommand() *cobra.Command {
	var withoutSecrets bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration file",
		Long: `Checks the configuration file with the environment as it is, without touching
Kafka or the store. Names everything that is wrong, with its line and what to
write instead. Exit code 2 if something is wrong; warnings alone are 0.

With --no-secrets it runs where secrets are missing, such as in CI: it accepts
variables without a default that are not set, and files of secrets and
certificates that do not exist, and names them as not checked.`,
		Example: `  connector validate --no-secrets --config deploy/config.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return c.validate(withoutSecrets) },
	}
	cmd.Flags().BoolVar(&withoutSecrets, "no-secrets", false, "accept that variables and files of secrets are missing")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

func (c *cli) validate(withoutSecrets bool) error {
	var config *Config
	var problems, unchecked []Problem
	if withoutSecrets {
		config, problems, unchecked = CheckWithoutSecrets(c.config, c.env)
	} else {
		config, problems = LoadConfig(c.config, c.env)
	}
	if c.output == "json" {
		if problems == nil {
			problems = []Problem{}
		}
		report := map[string]any{"valid": config != nil, "problems": problems}
		if withoutSecrets {
			report["unchecked"] = append([]Problem{}, unchecked...)
		}
		if err := writeJSON(c.stdout, report); err != nil {
			return err
		}
		if config == nil {
			return exit(exitUsage)
		}
		return nil
	}
	for _, p := range slices.Concat(problems, unchecked) {
		if _, err := printf(c.stderr, "%s\n", p); err != nil {
			return err
		}
	}
	if config == nil {
		return exit(exitUsage)
	}
	return c.sayValid(config)
}

// sayValid says what a valid configuration does.
func (c *cli) sayValid(config *Config) error {
	names := config.topicNames()
	if len(names) == 1 && len(config.Patterns) == 0 {
		_, err := printf(c.stdout, "%s: ok: topic %s goes to %s as %s\n", c.config, names[0], config.TableURL(config.Topics[names[0]]), withoutPasswords(config.Kafka.Group))
		if err != nil {
			return err
		}
		return c.sayLetters(config)
	}
	if _, err := printf(c.stdout, "%s: ok: %s and %s as %s\n", c.config, counting(int64(len(names)), "topic"), counting(int64(len(config.Patterns)), "pattern"), withoutPasswords(config.Kafka.Group)); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	for _, name := range names {
		_, _ = printf(tw, "%s\t%s\n", name, config.TableURL(config.Topics[name])) // Flush has the error
	}
	for _, p := range config.Patterns {
		_, _ = printf(tw, "%s\t%s\n", p.Pattern, config.TableURL(p.TopicConfig))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return c.sayLetters(config)
}

// sayLetters says where dead letters go.
func (c *cli) sayLetters(config *Config) error {
	tw := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	say := func(t *TopicConfig, name, topic, table string) {
		switch {
		case !t.writesLetters():
		case !t.archives():
			_, _ = printf(tw, "dead letters of %s\ttopic %s\t-\n", name, topic) // Flush has the error
		default:
			_, _ = printf(tw, "dead letters of %s\ttopic %s\t%s\n", name, topic, config.TableURL(TopicConfig{Table: table}))
		}
	}
	for _, name := range config.topicNames() {
		t := config.Topics[name]
		topic := strings.ReplaceAll(t.DeadLetters.Topic, topicPlaceholder, name)
		letters, _, _ := config.route(topic) // the configuration was checked
		say(&t, name, topic, letters.Table)
	}
	for _, p := range config.Patterns {
		say(&p.TopicConfig, p.Pattern, p.DeadLetters.Topic, p.DeadLetters.Archive)
	}
	return tw.Flush()
}

func (c *cli) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration in force",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show := &cobra.Command{
		Use:   "print",
		Short: "Print every key, its value and where the value comes from",
		Long: `Prints every key with the value in force and, as its comment, where the value
comes from: a default, a line of the file, or an environment variable.
Secrets are shown as ***.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			config, err := c.load()
			if err != nil {
				return err
			}
			if c.output == "json" {
				return config.printJSON(c.stdout)
			}
			return config.printYAML(c.stdout)
		},
	}
	c.configFlag(show)
	c.outputFlag(show)
	cmd.AddCommand(show)
	return cmd
}
