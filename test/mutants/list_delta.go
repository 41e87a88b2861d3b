package main

// ofDelta are the rules by which a table's log is read and written beside others.
var ofDelta = []mutant{
	// The end of a log that was cleaned up.
	{
		name: "a hole in a log that was cleaned up counts as its end",
		file: "sink/delta/deltalog/load.go",
		old:  "if last.Object, err = Stands(ctx, store, s); err != nil {", new: "if last.Object, err = Stands(ctx, store, s); errors.Is(err, ErrNoTable) {",
		pkg: "./sink/delta", test: "^TestRefresh_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "the end of a log is believed however long ago its newest version was seen",
		file: "sink/delta/deltalog/load.go",
		old:  "if s == before && offer.Young(s.ReadAt, at) {", new: "if s == before || offer.Young(at, s.ReadAt) {",
		pkg: "./sink/delta", test: "^TestRefresh_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "a checkpoint that is gone stands for its version",
		file: "sink/delta/deltalog/load.go",
		old:  "_, err = store.Head(ctx, s.Checkpoint.key(0))", new: "err = nil",
		pkg: "./sink/delta", test: "^TestRefresh_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "a checkpoint does not stand for its version",
		file: "sink/delta/deltalog/load.go",
		old:  "errors.Is(err, objstore.ErrNotFound) && s.Version == s.Checkpoint.Version {", new: "errors.Is(err, objstore.ErrNotFound) && s.Version < 0 {",
		pkg: "./sink/delta/deltalog", test: "^TestMultiPartCheckpointIsRead$",
	},
	{
		name: "a log that is cleaned up while it is read cannot be read",
		file: "sink/delta/refresh.go",
		old:  "if errors.Is(err, deltalog.ErrCorrupt) { // or", new: "if false { // or",
		pkg: "./sink/delta", test: "^TestRefresh_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "who follows a table takes a hole in its log for the end",
		file: "sink/delta/follow.go",
		old:  "if s != f.state || !offer.Young(s.ReadAt, at) {", new: "if s == f.state && !offer.Young(at, at) {",
		pkg: "./sink/delta", test: "^TestFollower_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "who looks for a row takes a hole in its log for the end",
		file: "sink/delta/look.go",
		old:  "!errors.Is(err, deltalog.ErrCorrupt) {", new: "err == nil || err != nil {",
		pkg: "./sink/delta", test: "^TestFollower_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "data files of any age are committed",
		file: "sink/delta/commit.go",
		old:  "case time.Since(files.at) > maxStaged || time.Since(files.at.Round(0)) > maxStaged:", new: "case false:",
		pkg: "./sink/delta", test: "^TestOldFiles$",
	},
}
