//go:build !long

package story_test

const (
	defaultTights   = 200
	defaultExpiries = 25
)
