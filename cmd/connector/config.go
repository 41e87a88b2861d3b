package main

import (
	"github.com/spf13/cobra"
)

func (c *cli) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration in force",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show := &cobra.Command{
		Use:   "print",
		Short: "Print every key with its value and the origin of the value",
		Long: `Prints every key with the value in force, and as its comment the origin of the
value: a default, a line of the file, or an environment variable. Secrets are
shown as ***.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			if c.output == "json" {
				values, err := cfg.Values()
				if err != nil {
					return err
				}
				return writeJSON(c.stdout, values)
			}
			return cfg.PrintYAML(c.stdout)
		},
	}
	c.configFlag(show)
	c.outputFlag(show)
	cmd.AddCommand(show)
	return cmd
}
