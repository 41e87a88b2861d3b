package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// stamped is the version that make build sets (-ldflags '-X main.stamped=v1.2.3'), "" in other builds.
var stamped string

// unversioned is the version of a build without a stamp and without a known commit.
const unversioned = "unversioned"

// build describes this binary.
type build struct {
	// Version is a tag, a version that Go derives from the last tag and the commit
	// (v0.0.0-20261122142138-e53f2de12345), or unversioned.
	Version  string `json:"version"`
	Revision string `json:"revision"` // the commit of the source, or "unknown"
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // the working tree had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readBuild returns the description of this binary. It never fails.
func readBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(stamped, info)
}

func buildOf(stamp string, info *debug.BuildInfo) build {
	b := build{
		Version: cmp.Or(stamp, strings.Trim(info.Main.Version, "()")), Revision: "unknown",
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
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
	if b.Version == "" || b.Version == "devel" { // go run, go test, -buildvcs=false, or no repository
		b.Version = unversioned
	}
	return b
}

// String formats the description as the line that the command version prints.
func (b build) String() string {
	s := "sluice connector " + b.Version
	if b.Revision == "unknown" {
		s += ", unknown revision"
	} else {
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
