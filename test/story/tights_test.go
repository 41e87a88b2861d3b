//go:build !long

package story_test

const defaultTights = 200
