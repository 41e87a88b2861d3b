//go:build !nodemo

package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"sluice/internal/app"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

// keep runs a member of the demo with the ops API until ctx ends. Once the API listens, it prints a token that is valid
// for this run, and requests to try. The token's hash is in a file in dir meanwhile.
func (c *cli) keep(ctx context.Context, cfg *config.Config, dir string) (err error) {
	token := rand.Text()
	file := filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, fmt.Appendf(nil, "demo operator %x\n", sha256.Sum256([]byte(token))), 0o600); err != nil {
		return fail.Dependency(fmt.Errorf("--dir: %w", err))
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()
	cfg.Ops.Listen, cfg.Ops.TokensFile = "127.0.0.1:0", file
	logger, level, err := terminal.NewVarLogger(demoLog, c.stderr)
	if err != nil {
		return err
	}
	frontEnd := opsAPI(cfg, level, logger)
	return app.Run(ctx, cfg, app.Options{
		Version: readBuild().Version, Stderr: c.stderr, Exit: func() { c.exit(exitFound) },
		FrontEnd: func(ctx context.Context, m *app.Member) (app.FrontEnd, error) {
			server, err := frontEnd(ctx, m)
			if err != nil {
				return nil, err
			}
			return announced{server, func(at net.Addr) error { return writeRequests(c.stdout, token, at) }}, nil
		},
	}, logger)
}

// announced is a front end that passes its address to tell as soon as it listens.
type announced struct {
	app.FrontEnd
	tell func(net.Addr) error
}

// Listen opens the address of the front end, and passes it to tell.
func (a announced) Listen(ctx context.Context) (net.Addr, error) {
	at, err := a.FrontEnd.Listen(ctx)
	if err != nil {
		return nil, err
	}
	return at, a.tell(at)
}

func writeRequests(w io.Writer, token string, at net.Addr) error {
	_, err := fmt.Fprintf(w, `
The member runs until Ctrl-C. Its ops API takes this token, with the role operator:

  TOKEN=%[1]s
  curl -s --oauth2-bearer "$TOKEN" http://%[2]s/internal/v1/status
  curl -s --oauth2-bearer "$TOKEN" --json '{"targets": ["%[3]s:0"], "reason": "a try"}' http://%[2]s/internal/v1/pause
  curl -s --oauth2-bearer "$TOKEN" http://%[2]s/internal/v1/holds
  curl -s --oauth2-bearer "$TOKEN" --json '{"all": true, "reason": "the try is over"}' http://%[2]s/internal/v1/resume
  curl -s --oauth2-bearer "$TOKEN" http://%[2]s/internal/v1/audit
`, token, at, demoTopic)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
