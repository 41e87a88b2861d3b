package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"sluice/internal/fail"
)

// startFrontEnd binds the address of the front end, and serves in the background until lasting ends. If the default
// address is in use, the member runs without a front end, so that a second member on the same machine needs no setting.
// If an address that an operator chose is in use, startFrontEnd returns an error.
func (s *Member) startFrontEnd(ctx, lasting context.Context, background *sync.WaitGroup) error {
	if s.frontEnd == nil {
		return nil
	}
	address, err := s.frontEnd.Listen(ctx)
	if errors.Is(err, syscall.EADDRINUSE) && s.config.Ops.IsDefault() {
		s.logger.WarnContext(ctx, "ops API is off: its default address is in use; set ops.listen to another one", "address", s.config.Ops.Listen)
		return nil
	}
	if err != nil {
		return fail.Usage(fmt.Errorf("ops.listen: %w", err))
	}
	s.logger.InfoContext(ctx, "ops API", "address", address.String())
	background.Go(func() {
		if err := s.frontEnd.Run(lasting, ctx.Done()); err != nil {
			s.logger.ErrorContext(ctx, "ops API failed", "err", err)
		}
	})
	return nil
}
