package main

import "slices"

// list has all mutants. Each guarantee of docs/guarantees.md must have one.
var list = slices.Concat(
	ofRecords,
	ofLetters,
	ofReplays,
	ofTopicIDs,
	ofTypes,
	ofArchive,
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
