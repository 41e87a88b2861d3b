package membership

// What the tests of the keeper hold it to.
const (
	CallTimeout  = callTimeout
	Hopeless     = hopeless
	MaxSeries    = maxSeries
	LinesPerPoll = linesPerPoll
)
