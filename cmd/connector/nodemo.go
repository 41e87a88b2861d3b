//go:build nodemo

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"sluice/internal/fail"
)

// demoCommand returns a command that explains that this build has no demo, because it has no broker inside.
func (c *cli) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "demo",
		Short:  "Not in this build",
		Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			return fail.Refused(errors.New("this build has no demo (it was built with the tag nodemo)"))
		},
	}
}
