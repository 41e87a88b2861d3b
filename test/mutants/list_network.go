package main

// ofNetwork are the rules of what other machines may send, and what is sent to them.
var ofNetwork = []mutant{
	{
		name: "kafka-go decodes responses that nothing checked",
		file: "connector/kafka/dial/frames.go",
		old:  "if err := frame.Check(int16(to.key), to.version, body); err != nil {", new: "if err := frame.Check(int16(to.key), to.version, body); err != nil && to.key != protocol.LeaveGroup {",
		pkg: "./connector/kafka", test: "^TestClient_AbsurdResponses$",
	},
	{
		name: "a response of 2 GiB is read",
		file: "connector/kafka/dial/frames.go",
		old:  "if n > frame.MaxSize {", new: "if n < 0 {",
		pkg: "./connector/kafka", test: "^TestGroup_AbsurdResponses$",
	},
	{
		name: "kafka-go makes a list of -1 elements",
		file: "connector/kafka/frame/frame.go",
		old:  "case null && f.required:", new: "case null && f.required && n > 0:",
		pkg: "./connector/kafka/frame", test: "^TestCheck_Null$",
	},
	{
		name: "what a response takes in memory has no bound",
		file: "connector/kafka/frame/frame.go",
		old:  "w.decoded > maxDecoded && w.err == nil", new: "w.decoded < 0 && w.err == nil",
		pkg: "./connector/kafka/frame", test: "^TestCheck_BoundsMemory$",
	},
	{
		name: "the bytes of an assignment are not walked",
		file: "connector/kafka/frame/frame.go",
		old:  "w.err == nil && len(b) > 0 {", new: "w.err == nil && len(b) < 0 {",
		pkg: "./connector/kafka/frame", test: "^TestCheck_Assignment$",
	},
	{
		name: "a size without bytes allocates a buffer",
		file: "connector/kafka/frame/frame.go",
		old:  "	var b bytes.Buffer\n", new: "	var b bytes.Buffer\n	b.Grow(n)\n",
		pkg: "./connector/kafka/frame", test: "^TestRead_AllocatesByBytes$",
	},
}
