//go:build lab && long

package pods

const (
	members = 3
	rounds  = 3 // of incidents
	rate    = 3000
)
