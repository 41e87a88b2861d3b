//go:build long

package story_test

const (
	defaultTights   = 10_000
	defaultExpiries = 2_000
)
