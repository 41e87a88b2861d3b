package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"sluice/internal/terminal"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.remote() {
				return c.printConfigAt(cmd.Context())
			}
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
	c.serverFlags(show, "config")
	cmd.AddCommand(show)
	return cmd
}

// printConfigAt prints the configuration in force of a member: a line KEY: VALUE # ORIGIN for each key.
func (c *cli) printConfigAt(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	values, err := client.Config(ctx)
	if err != nil {
		return err
	}
	if c.output == "json" {
		return writeJSON(c.stdout, values)
	}
	for _, v := range values {
		value, err := json.Marshal(v.Value)
		if err != nil {
			return fmt.Errorf("format the value of %s: %w", v.Key, err)
		}
		if _, err := terminal.Printf(c.stdout, "%s: %s # %s\n", v.Key, string(value), v.Origin); err != nil {
			return err
		}
	}
	return nil
}
