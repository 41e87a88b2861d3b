package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
)

func (c *cli) probeCommand() *cobra.Command {
	var (
		address, file string
		timeout       time.Duration
	)
	cmd := &cobra.Command{
		Use:   "probe [live|ready|startup]",
		Short: "Ask a running connector whether it is alive or ready",
		Long: `Asks a running connector over HTTP, for containers without a shell and curl:
/health/live (the default), /health/ready or /health/startup, at the address
that health.listen of the configuration names if --config is given, at --url
otherwise.

With --file it reads the file of health.liveness_file instead and makes no
request: a process that is alive writes the time into it every 5 s. The file
must exist and be at most 15 s old. So does --config if health.enabled is false
and the configuration names a file.

Exit code 0 for yes, 1 for no with the reason, 2 for usage, 3 if no server
answers.`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"live", "ready", "startup"},
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/health/live"
			if len(args) == 1 {
				path = "/health/" + args[0]
			}
			switch {
			case cmd.Flags().Changed("file"):
				if file == "" {
					return fail.Usage(errors.New("--file is empty: name the file"))
				}
				if len(args) == 1 && args[0] != "live" {
					return fail.Usage(errOnlyLive)
				}
				return c.probeFile(file)
			case cmd.Flags().Changed("url"):
				if len(args) == 0 { // the address as it stands
					path = ""
				}
			case cmd.Flags().Changed("config"):
				cfg, err := c.load()
				if err != nil {
					return err
				}
				if !cfg.Health.Enabled && cfg.Health.LivenessFile != "" {
					if len(args) == 1 && args[0] != "live" {
						return fail.Usage(errOnlyLive)
					}
					return c.probeFile(cfg.Health.LivenessFile)
				}
				if !cfg.Health.Enabled {
					return fail.Refused(fmt.Errorf("health.enabled is false in %s: no server to ask", c.config))
				}
				address = "http://" + admin.Reachable(cfg.Health.Listen)
			}
			return c.probe(cmd.Context(), strings.TrimSuffix(address, "/")+path, timeout)
		},
	}
	c.configFlag(cmd)
	cmd.Flags().StringVar(&address, "url", "http://127.0.0.1:8080", "address to ask; without live or ready, the complete one")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait for the answer")
	cmd.Flags().StringVar(&file, "file", "", "liveness file to look at, instead of asking")
	cmd.MarkFlagsMutuallyExclusive("config", "url", "file")
	return cmd
}

func (c *cli) probe(ctx context.Context, url string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fail.Usage(fmt.Errorf("--url: %w", err))
	}
	// No proxy, no reuse, no redirects: the answer must be the connector's own.
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return fail.Dependency(fmt.Errorf("probe: %w", err))
	}
	defer func() { _ = resp.Body.Close() }() // read only
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fail.Dependency(fmt.Errorf("probe %s: read the answer: %w", url, err))
	}
	if resp.StatusCode != http.StatusOK {
		return fail.Found(fmt.Errorf("probe %s: %s: %s", url, resp.Status, strings.TrimSpace(string(body))))
	}
	_, err = fmt.Fprintln(c.stdout, "ok")
	return err
}
