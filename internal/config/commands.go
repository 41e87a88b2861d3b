package config

import (
	"regexp"
	"strings"
)

// DefaultFile is the configuration file that commands read without --config.
const DefaultFile = "config.yaml"

// Plain matches texts that need no quotes in a shell.
var Plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// Pasted adds --config to a command line of connector if this configuration is not the default file, so that operators
// can paste the command.
func (c *Config) Pasted(command string) string {
	if command == "" || c.file == "" || c.file == DefaultFile {
		return command
	}
	file := c.file
	if !Plain.MatchString(file) {
		file = "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	}
	return command + " --config " + file
}
