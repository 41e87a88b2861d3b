package main

// ofPipeline are the rules of memory, backpressure and failures of our own between Kafka and the writer.
var ofPipeline = []mutant{
	{
		name: "a codec that panics ends the process",
		file: "connector/kafka/recordbatch/recordbatch.go",
		old:  "if v := recover(); v != nil {", new: "if v := any(nil); v != nil {",
		pkg: "./connector/kafka/recordbatch", test: "^TestOpen_CodecPanics$",
	},
	{
		name: "a codec is used on after its panic",
		file: "connector/kafka/recordbatch/recordbatch.go",
		old:  "o.codecs = codecs{} //", new: "_ = codecs{} //",
		pkg: "./connector/kafka/recordbatch", test: "^TestOpen_CodecPanics$",
	},
	{
		name: "a chunk that cannot be sealed ends the process",
		file: "connector/lane.go",
		old:  "c, err = Chunk{}, Recovered(decoding, v)", new: "panic(v)",
		pkg: "./test/story", test: "^TestSeal_Panics$",
	},
	{
		name: "no record of a chunk that cannot be sealed is found",
		file: "connector/isolate.go",
		old:  "w.state.isolated.suspect(cut.failures)", new: "_ = cut.failures",
		pkg: "./test/story", test: "^TestSeal_Panics$",
	},
	{
		name: "rows that fail only together are given up",
		file: "connector/lane.go",
		old:  "runs: o.runs, sealing: true}", new: "runs: o.runs, sealing: true, alone: true}",
		pkg: "./test/story", test: "^TestSeal_PanicsOnRowsTogether$",
	},
}
