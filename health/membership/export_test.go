package membership

// Constants for the tests of the keeper.
const (
	CallTimeout  = callTimeout
	Hopeless     = hopeless
	MaxSeries    = maxSeries
	LinesPerPoll = linesPerPoll
)
