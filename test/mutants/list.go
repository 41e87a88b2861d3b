package main

import "slices"

// list holds the rules that tests must protect. Keep it next to docs/guarantees.md: each guarantee has a mutant.
var list = slices.Concat(
	ofRecords,
	ofLetters,
	ofPipeline,
	ofHealth,
	ofAlerts,
	ofEpochs,
	ofSurface,
	ofNetwork,
	ofStorage,
	ofStores,
	ofDelta,
	ofRows,
	ofOutages,
	ofTranscripts,
)
