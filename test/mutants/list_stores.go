package main

// ofStores are the rules of what Redis and Postgres may reply.
var ofStores = []mutant{
	{
		name: "go-redis decodes replies that nothing checked",
		file: "health/membership/redis/store.go",
		old:  "return resp.Check(conn), nil", new: "return conn, nil",
		pkg: "./health/membership/redis", test: "^TestHostileReplies$",
	},
	{
		name: "go-redis decodes replies over TLS that nothing checked",
		file: "health/membership/redis/store.go",
		old:  "return resp.Check(secured), nil", new: "return secured, nil",
		pkg: "./health/membership/redis", test: "^TestHostileReplies$",
	},
	{
		name: "an absurd reply of Redis ends a member",
		file: "health/membership/redis/store.go",
		old:  "return resp.Check(conn), nil", new: "return conn, nil",
		pkg: "./cmd/connector", test: "^TestMembersStoreIsHostile$",
	},
	{
		name: "RESP begins before the handshake",
		file: "health/membership/redis/store.go",
		old:  "case config == nil:", new: "case config == nil || config.RootCAs != nil:",
		pkg: "./health/membership/redis", test: "^TestPasswordStays$",
	},
	{
		name: "a bulk string of a reply has no bound",
		file: "health/membership/redis/resp/walk.go",
		old:  "w.number > most {", new: "w.number > most && s != bulk {",
		pkg: "./health/membership/redis/resp", test: "^TestConn_Faults$",
	},
	{
		name: "the elements of a reply have no bound",
		file: "health/membership/redis/resp/walk.go",
		old:  "w.number > most {", new: "w.number > most && s != aggregate {",
		pkg: "./health/membership/redis/resp", test: "^TestConn_Faults$",
	},
	{
		name: "a line of a reply has no bound",
		file: "health/membership/redis/resp/walk.go",
		old:  "w.line++; w.line > maxLine {", new: "w.line++; w.line < 0 {",
		pkg: "./health/membership/redis/resp", test: "^TestConn_Faults$",
	},
	{
		name: "a reply is nested as deep as it likes",
		file: "health/membership/redis/resp/walk.go",
		old:  "if w.depth == maxDepth {", new: "if w.depth > maxDepth {",
		pkg: "./health/membership/redis/resp", test: "^TestConn_Faults$",
	},
	{
		name: "what a reply takes in memory has no bound",
		file: "health/membership/redis/resp/walk.go",
		old:  "w.memory += bytes; w.memory > maxReply {", new: "w.memory += bytes; w.memory < 0 {",
		pkg: "./health/membership/redis/resp", test: "^TestConn_Faults$",
	},
	{
		name: "elements of a reply take no memory",
		file: "health/membership/redis/resp/walk.go",
		old:  "w.takes(n * elementWeight)", new: "w.takes(n)",
		pkg: "./health/membership/redis/resp", test: "^TestConn_Faults$",
	},
	{
		name: "replies count together",
		file: "health/membership/redis/resp/walk.go",
		old:  "\tw.memory = 0\n", new: "",
		pkg: "./health/membership/redis/resp", test: "^TestConn_BoundIsOfOneReply$",
	},
	{
		name: "attributes are nested in a way that go-redis counts in another",
		file: "health/membership/redis/resp/walk.go",
		old:  "if w.attribute > 0 {", new: "if w.attribute < 0 {",
		pkg: "./health/membership/redis/resp", test: "^TestConn_Faults$",
	},
	{
		name: "a negative count of a reply passes",
		file: "health/membership/redis/resp/walk.go",
		old:  "|| w.negative && (w.line != 2 || b != '1'):", new: "|| w.negative && w.line != 2:",
		pkg: "./health/membership/redis/resp", test: "^TestConn_Faults$",
	},
	{
		name: "bytes of a fault reach the client",
		file: "health/membership/redis/resp/resp.go",
		old:  "errors.Unwrap(wrong)}\n\t\treturn 0, c.fault", new: "errors.Unwrap(wrong)}\n\t\treturn n, c.fault",
		pkg: "./health/membership/redis/resp", test: "^TestConn_NoBytesOfAFault$",
	},
	{
		name: "a fault of a reply passes",
		file: "health/membership/redis/resp/resp.go",
		old:  "if c.fault != nil {", new: "if c.fault == errors.ErrUnsupported {",
		pkg: "./health/membership/redis/resp", test: "^TestConn_Faults$",
	},
	{
		name: "a registration of 30 MiB is listed",
		file: "health/membership/redis/members.lua",
		old:  "elseif not fits(bytes, ARGV[4]) then", new: "elseif not fits(0, ARGV[4]) then",
		pkg: "./health/membership/redis", test: "^TestBounds$",
	},
	{
		name: "a field of the index of members is listed whatever its size",
		file: "health/membership/redis/members.lua",
		old:  "if not fits(redis.call('HSTRLEN', key, id), ARGV[4]) then", new: "if not fits(0, ARGV[4]) then",
		pkg: "./health/membership/redis", test: "^TestForeign$",
	},
	{
		name: "an id of 100 KiB is listed",
		file: "health/membership/redis/members.lua",
		old:  "if fits(#id, ARGV[3]) then", new: "if fits(0, ARGV[3]) then",
		pkg: "./health/membership/redis", test: "^TestBounds$",
	},
	{
		name: "registrations together have no bound",
		file: "health/membership/redis/members.lua",
		old:  " or bytes > left then", new: " then",
		pkg: "./health/membership/redis", test: "^TestBounds$",
	},
	{
		name: "a heartbeat reads a registration of 30 MiB",
		file: "health/membership/redis/beat.lua",
		old:  "elseif bytes <= tonumber(ARGV[7]) then", new: "else",
		pkg: "./health/membership/redis", test: "^TestBounds$",
	},
	{
		name: "a member writes a registration that others do not read",
		file: "health/membership/redis/store.go",
		old:  "if len(rest)+head > membership.MaxRegistration {", new: "if len(rest)+head > 1<<20 {",
		pkg: "./health/membership/redis", test: "^TestBeat_TooLarge$",
	},
	{
		name: "a list of members without its time is read",
		file: "health/membership/redis/store.go",
		old:  "if len(answer)%fields != 1 {", new: "if len(answer) > 1<<20 {",
		pkg: "./health/membership/redis", test: "^TestNoList$",
	},
	{
		name: "a panic of a store of registrations ends the member",
		file: "health/membership/caught.go",
		old:  "err := panics.Catch(op)", new: "err := op()",
		pkg: "./health/membership", test: "^TestKeeper_Panic$",
	},
	{
		name: "an id that others do not read is registered",
		file: "health/membership/keeper.go",
		old:  "if len(c.ID) > MaxID {", new: "if len(c.ID) > MaxRegistration {",
		pkg: "./health/membership", test: "^TestNewKeeper_LongID$",
	},
}
