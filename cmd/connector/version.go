package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what the Go toolchain wrote into the binary.
type build struct {
	Version  string `json:"version"` // "(devel)" without a tag
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // there were changes that no commit holds
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readBuild never fails: what the toolchain left out stays empty.
func readBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is the line that version prints.
func (b build) String() string {
	s := "sluice connector " + b.Version
	if b.Revision != "" {
		s += ", revision " + b.Revision
	}
	if b.Modified {
		s += " with changes"
	}
	return s + ", " + b.Go + ", " + b.Platform
}

func (c *cli) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if c.output == "json" {
				return writeJSON(c.stdout, readBuild())
			}
			_, err := fmt.Fprintln(c.stdout, readBuild())
			return err
		},
	}
	c.outputFlag(cmd)
	return cmd
}
