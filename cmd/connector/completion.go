package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/connector/decode"
	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/reliability/deadletter"
)

func (c *cli) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion {bash|zsh|fish}",
		Short: "Print a script that completes commands, flags and topics in a shell",
		Long: `Prints a script for a shell. It completes commands, flags, the values of flags,
and the topics of the configuration that --config names, without a connection to
Kafka or to the store.

  bash  needs the package bash-completion; for all later sessions:
        connector completion bash > /etc/bash_completion.d/connector
  zsh   connector completion zsh > "${fpath[1]}/_connector"
  fish  connector completion fish > ~/.config/fish/completions/connector.fish`,
		Example:   `  source <(connector completion bash)`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch args[0] {
			case "bash":
				err = cmd.Root().GenBashCompletionV2(c.stdout, true)
			case "zsh":
				err = cmd.Root().GenZshCompletion(c.stdout)
			case "fish":
				err = cmd.Root().GenFishCompletion(c.stdout, true)
			}
			if err != nil {
				return fmt.Errorf("print the script: %w", err)
			}
			return nil
		},
	}
}

// complete registers the function that completes the values of a flag.
func complete(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // the flag does not exist, or has a function already: a bug that the first run of any test finds
	}
}

// completes adds completion to cmd and to each command below it: topics for commands whose usage has TOPIC, and values
// for flags that several commands have. Nothing else is completed with the names of files.
func (c *cli) completes(cmd *cobra.Command) {
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	if takesTopics(cmd) && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = c.completeTopics
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if values := c.valuesOf(f.Name); values != nil {
			complete(cmd, f.Name, values)
		}
	})
	for _, sub := range cmd.Commands() {
		c.completes(sub)
	}
}

// takesTopics reports whether the arguments of a command are topics, partitions or records.
func takesTopics(cmd *cobra.Command) bool { return strings.Contains(cmd.Use, "TOPIC") }

// valuesOf returns the function that completes the values of a flag, nil if there is none.
func (c *cli) valuesOf(flag string) cobra.CompletionFunc {
	const files = cobra.ShellCompDirectiveDefault
	switch flag {
	case "config":
		return cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
	case "topic":
		return c.completeTopics
	case "dir":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	case "token-file", "ca-file", "value-file":
		return cobra.FixedCompletions(nil, files)
	case "code":
		return fixed(slices.Concat(deadletter.Reasons(), decode.Codes()))
	case "state":
		return fixed(append(admin.LetterStates(), "all"))
	case "mode":
		return cobra.FixedCompletions([]string{"direct", "topic"}, cobra.ShellCompDirectiveNoFileComp)
	}
	return nil
}

// fixed completes with words.
func fixed[T ~string](words []T) cobra.CompletionFunc {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	slices.Sort(texts)
	return cobra.FixedCompletions(slices.Compact(texts), cobra.ShellCompDirectiveNoFileComp)
}

// completeTopics completes the topics of the configuration that are not among the arguments yet. Without a usable
// configuration there are none. It needs no secrets, and connects to nothing.
func (c *cli) completeTopics(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	cfg, _, _ := config.CheckWithoutSecrets(c.config, c.env)
	if cfg == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	topics := slices.DeleteFunc(cfg.TopicNames(), func(topic string) bool { return slices.Contains(args, topic) })
	if strings.Contains(cmd.Use, "TOPIC:") || strings.Contains(cmd.Use, "TOPIC[:") { // a partition may follow
		return topics, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return topics, cobra.ShellCompDirectiveNoFileComp
}
