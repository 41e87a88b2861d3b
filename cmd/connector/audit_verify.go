package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/internal/terminal"
	"sluice/sink/opslog"
)

func (c *cli) auditVerifyCommand() *cobra.Command {
	var head string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify that the operations log was not changed",
		Long: `Reads the whole operations log and recomputes its chain of hashes. It finds
entries that were changed, replaced or removed, and objects that do not belong
there; with findings, exit code 1, and the first bad entry comes first. Removed
or replaced newest entries show only against a head that you kept: --head takes
it as audit list and audit verify print it. The chain has no key: only such a
head shows that the whole log was replaced.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.auditVerify(ctx, head)
		},
	}
	cmd.Flags().StringVar(&head, "head", "", "a kept head, SEQ:HASH, that must be in the log")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

func (c *cli) auditVerify(ctx context.Context, text string) error {
	var pinned opslog.Head
	var err error
	if text != "" {
		if pinned, err = opslog.ParseHead(text); err != nil {
			return fail.Usage(fmt.Errorf("--head: %w", err))
		}
	}
	a, err := c.access()
	if err != nil {
		return err
	}
	end := c.watch(a, "reading the operations log")
	r, err := admin.VerifyAudit(ctx, a, pinned)
	end()
	if err != nil {
		return err
	}
	if c.output == "json" {
		err = writeJSON(c.stdout, r)
	} else {
		err = printVerified(c.stdout, r)
	}
	if err == nil && len(r.Findings) > 0 {
		err = fail.Found(nil)
	}
	return err
}

func printVerified(w io.Writer, r opslog.Report) error {
	for _, f := range r.Findings {
		what := fmt.Sprintf("seq %d", f.Seq)
		if f.Key != "" {
			what = f.Key
		}
		if _, err := terminal.Printf(w, "%s: %s\n", what, f.Why); err != nil {
			return err
		}
	}
	verdict := "is what was written"
	if len(r.Findings) > 0 {
		verdict = "is NOT what was written"
	}
	_, err := terminal.Printf(w, "the operations log %s: %d entries", verdict, r.Entries)
	if err == nil && r.Head.Seq > 0 {
		_, err = terminal.Printf(w, ", head %v", r.Head)
	}
	if err == nil {
		_, err = fmt.Fprintln(w)
	}
	return err
}
