package main

// ofNetwork breaks the rules for input from other machines and for output to them.
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

	// Secrets.
	{
		name: "a password goes to a Postgres without TLS",
		file: "secure/pgconfig/pgconfig.go",
		old:  "|| secure.Verifies(t.TLSConfig) {", new: "|| secure.Verifies(t.TLSConfig) || t.TLSConfig == nil {",
		pkg: "./secure/pgconfig", test: "^TestParse$",
	},
	{
		name: "a password goes to a Postgres with any certificate",
		file: "secure/secure.go",
		old:  "return c != nil && !c.InsecureSkipVerify", new: "return c != nil",
		pkg: "./secure/pgconfig", test: "^TestPasswordStays$",
	},
	{
		name: "ca_file leaves the way without TLS open",
		file: "secure/pgconfig/pgconfig.go",
		old:  "safe[0].TLSConfig, safe[1:]", new: "safe[0].TLSConfig, c.Fallbacks",
		pkg: "./secure/pgconfig", test: "^TestParse$",
	},
	{
		name: "a password goes to a Redis without TLS",
		file: "health/membership/redis/store.go",
		old:  "if c.Password == \"\" || o.InsecurePlaintext ||", new: "if c.Password == \"\" || c.TLSConfig == nil || o.InsecurePlaintext ||",
		pkg: "./health/membership/redis", test: "^TestCheck$",
	},
	{
		name: "brokers get a password without TLS",
		file: "connector/kafka/dial/open.go",
		old:  "&& !s.InsecurePlaintext && !secure.LoopbackAddress(o.address) {", new: "&& !s.InsecurePlaintext && s.Mechanism == \"\" {",
		pkg: "./connector/kafka/dial", test: "^TestPlaintext$",
	},
	{
		name: "an endpoint from the environment needs no TLS",
		file: "sink/delta/objstore/s3wire.go",
		old:  "if req.URL.Scheme != \"https\" && !w.plaintext", new: "if req.URL.Scheme == \"\" && !w.plaintext",
		pkg: "./sink/delta/objstore", test: "^TestS3_PlaintextFromEnvironment$",
	},
	{
		name: "a name that begins like this machine is this machine",
		file: "secure/secure.go",
		old:  "if strings.EqualFold(host, \"localhost\") {", new: "if strings.HasPrefix(strings.ToLower(host), \"localhost\") {",
		pkg: "./secure", test: "^TestLoopback$",
	},
}
