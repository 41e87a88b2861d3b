package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

// cli has the environment, the streams and the common flags of all commands.
type cli struct {
	env            func(string) (string, bool)
	stdin          io.Reader
	input          *bufio.Reader // reads stdin; nil before the first question
	stdout, stderr io.Writer     // write text with escaped control sequences
	raw            io.Writer     // stdout without escaping; nil if stdout is a terminal
	terminal       func() bool   // reports whether a person can answer questions
	exit           func(int)     // ends the process at once

	config string // flag --config
	output string // flag --output: one of the values in list.go
	topic  string // flag --topic
	server server // flags --server, --token-file and --ca-file
	loaded *config.Config
}

// commands returns the subcommands of connector.
func (c *cli) commands() []*cobra.Command {
	return []*cobra.Command{
		c.runCommand(),
		c.initCommand(),
		c.demoCommand(),
		c.validateCommand(),
		c.checkCommand(),
		c.configCommand(),
		c.probeCommand(),
		c.tableCommand(),
		c.schemaCommand(),
		c.offsetsCommand(),
		c.holdsCommand(),
		c.deadLettersCommand(),
		c.fingerprintsCommand(),
		c.membersCommand(),
		c.pauseCommand(),
		c.resumeCommand(),
		c.flushCommand(),
		c.auditCommand(),
		c.logLevelCommand(),
		c.verifyCommand(),
		c.completionCommand(),
		c.versionCommand(),
	}
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "connector",
		Short: "Sluice moves keyed Kafka records into Delta Lake tables, exactly once",
		Long: `Sluice moves keyed Kafka records into Delta Lake tables on S3, exactly once.

Exit codes: 0 ok, 1 found something, 2 usage or configuration, 3 a dependency
could not be used, 4 refused because it would do harm, 70 internal error.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(c.commands()...)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown := cmd.ValidateArgs(cmd.Flags().Args()); cmd.HasSubCommands() && unknown != nil {
			return unknown // names the misspelled subcommand rather than its unknown flag
		}
		return refusesServer(cmd, err)
	})
	namesCommands(root)
	c.completes(root)
	return root
}

// namesCommands makes cmd, and each command below it, suggest similar names if a subcommand does not exist. It changes
// only commands that take subcommands and no arguments.
func namesCommands(cmd *cobra.Command) {
	if cmd.HasSubCommands() && cmd.ValidateArgs([]string{"x"}) != nil {
		cmd.SuggestionsMinimumDistance = 2
		cmd.Args = unknownCommand
	}
	for _, sub := range cmd.Commands() {
		namesCommands(sub)
	}
}

// unknownCommand is the [cobra.PositionalArgs] of commands that take only subcommands. It refuses any argument, and
// suggests subcommands with similar names.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		return fmt.Errorf("unknown command %q for %q: did you mean %s?", args[0], cmd.CommandPath(), strings.Join(meant, " or "))
	}
	return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
}

// configFlag adds --config.
func (c *cli) configFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.config, "config", "c", config.DefaultFile, "configuration file")
}

// access returns access to the pipeline that the configuration describes. An error has the exit code 2.
func (c *cli) access() (*admin.Access, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	return &admin.Access{Config: cfg, Version: readBuild().Version}, nil
}

// watch shows the progress of what a does on stderr, if that is a terminal and the work takes long. The caller calls end
// when the work ends, before it prints anything.
func (c *cli) watch(a *admin.Access, what string) (end func()) {
	p := terminal.NewProgress(c.stderr, what)
	a.Progress = func(done, of int64) { p.Set(done, of, "") }
	return p.Close
}

// load reads the configuration at its first call, and prints its problems to stderr. An error has the exit code 2.
func (c *cli) load() (*config.Config, error) {
	if c.loaded != nil {
		return c.loaded, nil
	}
	cfg, problems := config.Load(c.config, c.env)
	for _, p := range problems {
		if _, err := terminal.Printf(c.stderr, "%s\n", p); err != nil {
			return nil, fail.Usage(err)
		}
	}
	if cfg == nil {
		return nil, fail.Usage(nil)
	}
	c.loaded = cfg
	return cfg, nil
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
