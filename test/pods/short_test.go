//go:build lab && !long

package pods

const (
	members = 2
	rounds  = 1 // of incidents
	rate    = 1000
)
