package terminal

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

const (
	columnGap = 2
	minColumn = 12 // cutting makes no column narrower than this
)

const cutTableHint = "values are cut to the width of the terminal: --output wide shows them whole"

// Columns aligns rows of cells that are separated by tabs. On a terminal it cuts the longest cells until each row fits, and
// writes a hint below the rows; elsewhere it cuts nothing. It writes only in Flush.
type Columns struct {
	w     io.Writer
	whole bool // true if it cuts nothing on a terminal either
	text  bytes.Buffer
}

// NewColumns returns columns that Flush writes to w. If whole is true, it cuts nothing on a terminal either.
func NewColumns(w io.Writer, whole bool) *Columns { return &Columns{w: w, whole: whole} }

// Write implements io.Writer.
func (c *Columns) Write(b []byte) (int, error) {
	return c.text.Write(b) //nolint:wrapcheck // a bytes.Buffer returns no error
}

// Flush writes the rows.
func (c *Columns) Flush() error {
	text, cut := c.text.String(), false
	if s, ok := c.w.(*Screen); ok && !c.whole && s.terminal != nil && s.terminal.width > 0 {
		text, cut = fitted(text, s.terminal.width)
	}
	c.text.Reset()
	tw := tabwriter.NewWriter(c.w, 0, 4, columnGap, ' ', 0)
	if _, err := io.WriteString(tw, text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if cut {
		_, err := fmt.Fprintln(c.w, cutTableHint)
		return err
	}
	return nil
}

// fitted cuts cells so that no row is longer than width, and reports whether it cut any.
func fitted(text string, width int) (string, bool) {
	var widths []int
	var rows [][]string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i, cell := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
		rows = append(rows, cells)
	}
	limit := columnLimit(widths, width)
	cut := false
	var b strings.Builder
	for _, cells := range rows {
		for i, cell := range cells {
			if runes := []rune(cell); len(runes) > limit {
				cells[i], cut = string(runes[:limit-1])+"…", true
			}
		}
		b.WriteString(strings.Join(cells, "\t") + "\n")
	}
	return b.String(), cut
}

// columnLimit returns the largest width of a single column with which all columns fit into width, but at least
// minColumn.
func columnLimit(widths []int, width int) int {
	limit := minColumn
	for _, w := range widths {
		limit = max(limit, w)
	}
	for ; limit > minColumn; limit-- {
		sum := columnGap * (len(widths) - 1)
		for _, w := range widths {
			sum += min(w, limit)
		}
		if sum <= width {
			break
		}
	}
	return limit
}
