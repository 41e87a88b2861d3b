package main

// ofNetwork has the mutants that break the rules for input from other machines and for output to them.
var ofNetwork = []mutant{
	{
		name: "kafka-go decodes unchecked responses",
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
		name: "a list of -1 elements reaches kafka-go",
		file: "connector/kafka/frame/frame.go",
		old:  "case null && f.required:", new: "case null && f.required && n > 0:",
		pkg: "./connector/kafka/frame", test: "^TestCheck_Null$",
	},
	{
		name: "the memory of a decoded response has no limit",
		file: "connector/kafka/frame/frame.go",
		old:  "w.decoded > maxDecoded && w.err == nil", new: "w.decoded < 0 && w.err == nil",
		pkg: "./connector/kafka/frame", test: "^TestCheck_BoundsMemory$",
	},
	{
		name: "the bytes of an assignment are not checked",
		file: "connector/kafka/frame/frame.go",
		old:  "w.err == nil && len(b) > 0 {", new: "w.err == nil && len(b) < 0 {",
		pkg: "./connector/kafka/frame", test: "^TestCheck_Assignment$",
	},
	{
		name: "a buffer is allocated by a response's size, before its bytes come",
		file: "connector/kafka/frame/frame.go",
		old:  "	var b bytes.Buffer\n", new: "	var b bytes.Buffer\n	b.Grow(n)\n",
		pkg: "./connector/kafka/frame", test: "^TestRead_AllocatesByBytes$",
	},

	// Secrets.
	{
		name: "a password is sent to a Postgres without TLS",
		file: "secure/pgconfig/pgconfig.go",
		old:  "|| secure.Verifies(t.TLSConfig) {", new: "|| secure.Verifies(t.TLSConfig) || t.TLSConfig == nil {",
		pkg: "./secure/pgconfig", test: "^TestParse$",
	},
	{
		name: "a password is sent to a Postgres with an unverified certificate",
		file: "secure/secure.go",
		old:  "return c != nil && !c.InsecureSkipVerify", new: "return c != nil",
		pkg: "./secure/pgconfig", test: "^TestPasswordStays$",
	},
	{
		name: "with ca_file, Postgres may still be connected without TLS",
		file: "secure/pgconfig/pgconfig.go",
		old:  "safe[0].TLSConfig, safe[1:]", new: "safe[0].TLSConfig, c.Fallbacks",
		pkg: "./secure/pgconfig", test: "^TestParse$",
	},
	{
		name: "a password is sent to a Redis without TLS",
		file: "health/membership/redis/store.go",
		old:  "if c.Password == \"\" || o.InsecurePlaintext ||", new: "if c.Password == \"\" || c.TLSConfig == nil || o.InsecurePlaintext ||",
		pkg: "./health/membership/redis", test: "^TestCheck$",
	},
	{
		name: "a password is sent to brokers without TLS",
		file: "connector/kafka/dial/open.go",
		old:  "&& !s.InsecurePlaintext && !secure.LoopbackAddress(o.address) {", new: "&& !s.InsecurePlaintext && s.Mechanism == \"\" {",
		pkg: "./connector/kafka/dial", test: "^TestPlaintext$",
	},
	{
		name: "credentials are sent without TLS to an endpoint from the environment",
		file: "sink/delta/objstore/s3wire.go",
		old:  "if req.URL.Scheme != \"https\" && !w.plaintext", new: "if req.URL.Scheme == \"\" && !w.plaintext",
		pkg: "./sink/delta/objstore", test: "^TestS3_PlaintextFromEnvironment$",
	},
	{
		name: "a host name that begins with localhost counts as localhost",
		file: "secure/secure.go",
		old:  "if strings.EqualFold(host, \"localhost\") {", new: "if strings.HasPrefix(strings.ToLower(host), \"localhost\") {",
		pkg: "./secure", test: "^TestLoopback$",
	},
}
