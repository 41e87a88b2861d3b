// Command render prints the objects of the Helm chart. The values come from the standard input.
//
//	render CHART NAME
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"sluice/test/chart"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: render CHART NAME")
	}
	values, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	text, err := chart.Render(args[0], args[1], string(values))
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, text)
	return err
}
