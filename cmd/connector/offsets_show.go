package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) showOffsets(ctx context.Context) error {
	lines, err := c.findPositions(ctx)
	if err != nil {
		return err
	}
	if c.output == "json" {
		err = writeJSON(c.stdout, lines)
	} else {
		err = printOffsets(c.stdout, lines)
	}
	if err == nil && slices.ContainsFunc(lines, func(l admin.Position) bool { return l.Hold != nil }) {
		err = fail.Found(nil)
	}
	return err
}

// findPositions returns the positions, from the member that --server names if it names one.
func (c *cli) findPositions(ctx context.Context) ([]admin.Position, error) {
	if c.remote() {
		client, err := c.client()
		if err != nil {
			return nil, err
		}
		return client.Positions(ctx, c.topic)
	}
	a, err := c.access()
	if err != nil {
		return nil, err
	}
	return admin.Positions(ctx, a, c.topic)
}

func printOffsets(w io.Writer, lines []admin.Position) error {
	tw := terminal.NewColumns(w)
	show := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return strconv.FormatInt(*n, 10)
	}
	_, _ = fmt.Fprintln(tw, "PARTITION\tPOSITION\tCOMMITTED\tLOG START\tLAST STABLE\tLAG\tHOLD") // Flush returns the error
	for _, l := range lines {
		name, h := l.Topic, "-"
		if l.Partition >= 0 {
			name += ":" + strconv.Itoa(int(l.Partition))
		}
		if l.Hold != nil {
			h = string(l.Hold.Reason)
		}
		_, _ = terminal.Printf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, show(l.Position), show(l.Group), show(l.LogStart), show(l.End), show(l.Lag), h)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, l := range lines {
		if l.Note == "" {
			continue
		}
		if _, err := terminal.Printf(w, "\n%s: %s\n", l.Topic, l.Note); err != nil {
			return err
		}
	}
	// Explain each hold once, even if several partitions have it.
	explained := map[admin.HoldInfo]bool{}
	for _, l := range lines {
		if l.Hold == nil || explained[*l.Hold] {
			continue
		}
		explained[*l.Hold] = true
		if _, err := terminal.Printf(w, "\n%s: %s\n  %s\n", l.Hold.Reason, l.Hold.Detail, ending(l.Hold.EndsBy)); err != nil {
			return err
		}
	}
	return nil
}
