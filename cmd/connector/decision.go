package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// errNothingToDo says that the log says already what an operation would say.
var errNothingToDo = errors.New("nothing to do")

// decision is an operation that a person at the command line writes into the operations log.
type decision struct {
	// judge looks at what stands there already, once before the person is asked and again in the very state that the
	// operation extends: errNothingToDo, another error if the operation is refused, and what to say in any case.
	judge func(s *opslog.State) (notes []string, err error)
	body  func() opslog.Body
	plan  func() (line string, asJSON any) // what would be done
	done  func() string                    // what was done, without the end of the line
}

// decide writes a decision if the person agrees.
func (c *cli) decide(ctx context.Context, timeout time.Duration, cfg *config.Config, ch *change, d decision) error {
	o, err := openOperations(ctx, cfg, !ch.dryRun)
	if err != nil {
		return err
	}
	defer o.end()
	looking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s, err := o.State(looking)
	if err != nil {
		return failedOperation(opslog.Entry{}, err)
	}
	notes, refused := d.judge(s)
	for _, note := range notes {
		if _, err := printf(c.stderr, "%s\n", note); err != nil {
			return err
		}
	}
	if refused != nil {
		return c.refusedDecision(refused)
	}
	do, err := c.confirm(ctx, ch, func(w io.Writer) error {
		line, asJSON := d.plan()
		if ch.dryRun && c.output == "json" {
			return writeJSON(w, asJSON)
		}
		_, err := printf(w, "%s\n", line)
		return err
	})
	if !do {
		return err
	}
	writing, cancel := context.WithTimeout(ctx, timeout) // the question took its time
	defer cancel()
	refused = nil
	e, err := o.append(writing, ch, d.body(), func(s *opslog.State) error {
		_, refused = d.judge(s) // somebody else may have done it meanwhile
		return refused
	})
	if refused != nil {
		return c.refusedDecision(refused)
	}
	if err != nil {
		return err
	}
	if c.output == "json" {
		return writeJSON(c.stdout, shownEntry{e, e.Hash()})
	}
	_, err = printf(c.stdout, "%s (operation %d); members hear of it within %v\n", d.done(), e.Seq, opslog.HeardWithin)
	return err
}

func (c *cli) refusedDecision(err error) error {
	if errors.Is(err, errNothingToDo) {
		_, err := fmt.Fprintln(c.stderr, errNothingToDo)
		return err
	}
	return fail.Refused(err)
}
