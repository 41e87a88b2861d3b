package config

import (
	"regexp"
	"strings"
)

// DefaultFile is the configuration that commands read without --config.
const DefaultFile = "config.yaml"

// Plain are the texts that no shell changes.
var Plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// Pasted returns a command line of connector with what it needs to run where this configuration was read.
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
