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
	return Pasted(command, c.file)
}

// Pasted adds --config with a file to a command line of connector, unless it is the default file or "".
func Pasted(command, file string) string {
	if command == "" || file == "" || file == DefaultFile {
		return command
	}
	if !Plain.MatchString(file) {
		file = "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	}
	return command + " --config " + file
}
