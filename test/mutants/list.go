package main

import "slices"

// list has all mutants. Each guarantee of docs/guarantees.md must have one.
var list = slices.Concat(
	ofRecords,
	ofLetters,
	ofReplays,
	ofTopicIDs,
	ofTypes,
	ofMetadata,
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
	ofColumns,
	ofInference,
	ofOutages,
	ofTranscripts,
	ofFirstMinutes,
)
