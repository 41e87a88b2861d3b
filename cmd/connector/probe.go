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
		Long: `Requests /health/live (the default), /health/ready or /health/startup of a
running connector over HTTP, for containers without a shell and curl. With
--config the address is health.listen of the configuration, otherwise --url.

With --file it reads the file of health.liveness_file and sends no request: a
live process writes the time into it every 5 s. The file must exist and be at
most 15 s old. --config does the same if health.enabled is false and the
configuration names a file.

Exit code 0 for yes, 1 for no with the reason, 2 for usage, 3 if no server
responds.`,
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
				if len(args) == 0 { // without arguments, the flag --url has the complete address
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
					return fail.Refused(fmt.Errorf("health.enabled is false in %s: there is no server to probe", c.config))
				}
				address = "http://" + admin.Reachable(cfg.Health.Listen)
			}
			return c.probe(cmd.Context(), strings.TrimSuffix(address, "/")+path, timeout)
		},
	}
	c.configFlag(cmd)
	cmd.Flags().StringVar(&address, "url", "http://127.0.0.1:8080", "address of the connector; without live, ready or startup, the complete URL")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait for the response")
	cmd.Flags().StringVar(&file, "file", "", "liveness file to check, instead of a request")
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
	// No proxy, no reused connection, no redirect: the response must come from the connector itself.
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
		return fail.Dependency(fmt.Errorf("probe %s: read the response: %w", url, err))
	}
	if resp.StatusCode != http.StatusOK {
		return fail.Found(fmt.Errorf("probe %s: %s: %s", url, resp.Status, strings.TrimSpace(string(body))))
	}
	_, err = fmt.Fprintln(c.stdout, "ok")
	return err
}
