package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/api"
	"sluice/internal/fail"
	"sluice/internal/terminal"
	"sluice/reliability"
)

// server has the flags of commands that can work over the ops API of a running member. Without --server such a command
// does its work itself.
type server struct {
	url               serverURL
	tokenFile, caFile string
	within            time.Duration
}

// serverURL is the value of --server. An empty one is refused, because with it a command would do its work itself.
type serverURL string

// String returns the URL.
func (u *serverURL) String() string { return string(*u) }

// Type names the value in the help text.
func (u *serverURL) Type() string { return "URL" }

// Set checks and sets the URL.
func (u *serverURL) Set(text string) error {
	address, err := api.ParseServer(text)
	*u = serverURL(address)
	return err
}

// serverText is a part of the help of each command that has --server.
const serverText = `

With --server a running member does this, by its ops API, and no configuration
file is read. The file of --token-file has the token, whose name and role count.`

// longerThanServer is more than the time that a member takes for a request before it gives up.
const longerThanServer = 45 * time.Second

// serverFlags adds --server and its companions. local names the flags that cannot be combined with it. It must be called
// after outputFlag.
func (c *cli) serverFlags(cmd *cobra.Command, local ...string) {
	cmd.Long += serverText
	cmd.Flags().Var(&c.server.url, "server", "let the member at this ops API do it, such as http://127.0.0.1:8090")
	cmd.Flags().StringVar(&c.server.tokenFile, "token-file", "", "file with the token for --server")
	cmd.Flags().StringVar(&c.server.caFile, "ca-file", "", "CA certificates for --server (default those of the system)")
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !c.remote() && (c.server.tokenFile != "" || c.server.caFile != "") {
			return fail.Usage(errors.New("--token-file and --ca-file belong to --server: name the member, too"))
		}
		for _, name := range local {
			if c.remote() && cmd.Flags().Changed(name) {
				return fail.Usage(fmt.Errorf("--%s has no effect with --server: leave it out", name))
			}
		}
		c.server.within = longerThanServer
		if f := cmd.Flags().Lookup("timeout"); f != nil && f.Changed {
			within, err := time.ParseDuration(f.Value.String())
			if err != nil {
				return fail.Usage(err)
			}
			c.server.within = within
		}
		if before == nil {
			return nil
		}
		return before(cmd, args)
	}
}

// remote reports whether a running member is to do the work of the command.
func (c *cli) remote() bool { return c.server.url != "" }

// client returns a client of the API that --server names. It warns if others may read the file with the token.
func (c *cli) client() (*api.Client, error) {
	if info, err := os.Stat(c.server.tokenFile); err == nil && info.Mode().Perm()&0o077 != 0 {
		if _, err := terminal.Printf(c.stderr, "connector: other users of this machine may read %s: chmod 600\n", c.server.tokenFile); err != nil {
			return nil, err
		}
	}
	return api.NewClient(api.ClientOptions{Server: string(c.server.url), TokenFile: c.server.tokenFile, CAFile: c.server.caFile, Within: c.server.within})
}

// refusesServer replaces the error of an unknown flag if the flag is one of serverFlags: the command has no such flag.
func refusesServer(cmd *cobra.Command, err error) error {
	for _, name := range []string{"server", "token-file", "ca-file"} {
		if err.Error() == "unknown flag: --"+name {
			return fail.Usage(fmt.Errorf("%s always works itself, with the configuration, and has no --%s: docs/commands.md lists the commands that have it", cmd.CommandPath(), name))
		}
	}
	return err
}

// newKey returns the Idempotency-Key of a change.
func newKey() string { return uuid.NewString() }

// decideAt lets a member decide: it shows the plan, asks for consent unless --yes is given, and prints the entry of the
// operations log. send sends the request.
func (c *cli) decideAt(ctx context.Context, ch *change, send func(context.Context, *api.Client, api.Change) (*api.Decided, error)) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if !ch.yes || ch.dryRun {
		d, err := send(ctx, client, api.Change{Reason: ch.reason, DryRun: true})
		if err != nil {
			return err
		}
		if err := c.printNotes(d.Notes); err != nil {
			return err
		}
		if d.Text == admin.ErrNothingToDo.Error() {
			return c.nothingToDo(admin.ErrNothingToDo)
		}
		do, err := c.confirmDecision(ctx, ch, d.Text, d.Plan)
		if !do {
			return err
		}
	}
	d, err := send(ctx, client, api.Change{Reason: ch.reason, Key: newKey()})
	if err != nil {
		return err
	}
	if ch.yes {
		if err := c.printNotes(d.Notes); err != nil {
			return err
		}
	}
	if !d.Changed {
		return c.nothingToDo(admin.ErrNothingToDo)
	}
	return c.printDecided(d.Text, *d.Entry)
}

// decideTargetsAt lets a member decide about topics and partitions, or about all without targets. path is that of the
// request.
func (c *cli) decideTargetsAt(ctx context.Context, ch *change, path string, targets []string) error {
	return c.decideAt(ctx, ch, func(ctx context.Context, client *api.Client, request api.Change) (*api.Decided, error) {
		return client.DecideTargets(ctx, path, targets, request)
	})
}

// replayAt lets a member replay dead letters as a job, and waits for its end.
func (c *cli) replayAt(ctx context.Context, ch *change, o api.Replaying) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if !ch.yes || ch.dryRun {
		j, err := c.endOfJob(ctx, client, o, api.Change{Reason: ch.reason, DryRun: true}, nil)
		if err != nil {
			return err
		}
		if j.Plan.Count == 0 {
			return errors.Join(c.printNotes(j.Plan.Notes), c.nothingToDo(admin.ErrNothingToDo))
		}
		do, err := c.confirmReplay(ctx, ch, j.Plan)
		if !do {
			return err
		}
	}
	progress, end := c.replayProgress()
	j, err := c.endOfJob(ctx, client, o, api.Change{Reason: ch.reason, Key: newKey()}, progress)
	end()
	if j == nil {
		return err
	}
	if err == nil && j.Plan.Count == 0 {
		return errors.Join(c.printNotes(j.Plan.Notes), c.nothingToDo(admin.ErrNothingToDo))
	}
	result := j.Result()
	return errors.Join(c.showReplay(result), replayOutcome(result, err))
}

// pollEvery is the time between two requests for the state of a job.
const pollEvery = 500 * time.Millisecond

// endOfJob starts a job and returns it once it has ended. It returns the job with an error if the job did not do all of
// its work.
func (c *cli) endOfJob(ctx context.Context, client *api.Client, o api.Replaying, ch api.Change, progress func(admin.ReplayProgress)) (*api.Job, error) {
	s, err := client.Replay(ctx, o, ch)
	if err != nil {
		return nil, err
	}
	j := s.Job
	if j == nil { // another member, at the same address, has started it
		return nil, fail.Dependency(fmt.Errorf("another member has begun this replay, as operation %d: --server has to name one member", s.Entry.Seq))
	}
	for j.Ended == nil {
		if err := reliability.Wait(ctx, pollEvery); err != nil {
			return nil, fail.Dependency(fmt.Errorf("job %s continues at member %s: GET jobs/%s of the ops API shows it, DELETE cancels it: %w", j.ID, j.Member, j.ID, err))
		}
		next, err := client.Job(ctx, j.ID)
		if err != nil {
			return nil, fmt.Errorf("job %s may still run: %w", j.ID, err)
		}
		if j = next; progress != nil && j.Plan != nil {
			progress(admin.ReplayProgress{Done: j.Handled, Of: j.Plan.Count, Result: j.Result()})
		}
	}
	return j, j.Err()
}

// printNotes prints notes about a plan to stderr.
func (c *cli) printNotes(notes []string) error {
	for _, note := range notes {
		if _, err := terminal.Printf(c.stderr, "%s\n", note); err != nil {
			return err
		}
	}
	return nil
}

// letters returns the selection as the API accepts it.
func (q *letterSelection) letters() api.Letters {
	l := api.Letters{Topic: q.Topic, TopicID: q.topicID, Code: q.Reason, Since: q.since, Until: q.until}
	for _, place := range q.Records {
		l.Records = append(l.Records, place.String())
	}
	for _, state := range q.States {
		l.States = append(l.States, string(state))
	}
	return l
}
