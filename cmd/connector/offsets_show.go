package main

import (
	"context"
	"io"
	"slices"

	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) showOffsets(ctx context.Context) error {
	lines, err := c.findPositions(ctx)
	if err != nil {
		return err
	}
	err = c.print(lines, func(w io.Writer, wide bool) error { return printOffsets(w, wide, lines) })
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
	defer c.watch(a, "reading the tables and Kafka")()
	return admin.Positions(ctx, a, c.topic)
}

// printOffsets prints positions as a table. Below the table it prints notes and what each hold means; a wide table has
// both in its columns.
func printOffsets(w io.Writer, wide bool, lines []admin.Position) error {
	held := func(text func(*admin.HoldInfo) string) func(admin.Position) string {
		return func(l admin.Position) string {
			if l.Hold == nil {
				return "-"
			}
			return cellLine(text(l.Hold))
		}
	}
	err := printList(w, wide, lines,
		column[admin.Position]{title: "PARTITION", cell: func(l admin.Position) string { return cellPartition(l.Topic, l.Partition) }},
		column[admin.Position]{title: "POSITION", cell: func(l admin.Position) string { return cellNumber(l.Position) }},
		column[admin.Position]{title: "COMMITTED", cell: func(l admin.Position) string { return cellNumber(l.Group) }},
		column[admin.Position]{title: "LOG START", cell: func(l admin.Position) string { return cellNumber(l.LogStart) }},
		column[admin.Position]{title: "LAST STABLE", cell: func(l admin.Position) string { return cellNumber(l.End) }},
		column[admin.Position]{title: "LAG", cell: func(l admin.Position) string { return cellNumber(l.Lag) }},
		column[admin.Position]{title: "HOLD", cell: held(func(h *admin.HoldInfo) string { return string(h.Reason) })},
		column[admin.Position]{title: "ENDS BY", wide: true, cell: held(func(h *admin.HoldInfo) string { return h.EndsBy })},
		column[admin.Position]{title: "DETAIL", wide: true, cell: held(func(h *admin.HoldInfo) string { return h.Detail })},
		column[admin.Position]{title: "NOTE", wide: true, cell: func(l admin.Position) string { return cellLine(l.Note) }})
	if err != nil || wide {
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
