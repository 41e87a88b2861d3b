package main

// ofDelta has the mutants that break the rules for reading and writing a table's log beside other writers.
var ofDelta = []mutant{
	// The end of a log that was cleaned up.
	{
		name: "a hole in a cleaned-up log counts as the end of the log",
		file: "sink/delta/deltalog/load.go",
		old:  "if last.Object, err = stands(ctx, store, s); err != nil {", new: "if last.Object, err = stands(ctx, store, s); errors.Is(err, ErrNoTable) {",
		pkg: "./sink/delta", test: "^TestRefresh_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "the end of a log counts although its newest version was read long ago",
		file: "sink/delta/deltalog/load.go",
		old:  "if s == began && logappend.Recent(s.ReadAt, at) {", new: "if s == began || logappend.Recent(at, s.ReadAt) {",
		pkg: "./sink/delta", test: "^TestRefresh_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "a deleted checkpoint proves that its version exists",
		file: "sink/delta/deltalog/load.go",
		old:  "_, err = store.Head(ctx, s.Checkpoint.key(0))", new: "err = nil",
		pkg: "./sink/delta", test: "^TestLoad_CheckpointIsCleanedUp$",
	},
	{
		name: "an existing checkpoint does not prove that its version exists",
		file: "sink/delta/deltalog/load.go",
		old:  "errors.Is(err, objstore.ErrNotFound) && s.Version == s.Checkpoint.Version {", new: "errors.Is(err, objstore.ErrNotFound) && s.Version < 0 {",
		pkg: "./sink/delta/deltalog", test: "^TestMultiPartCheckpointIsRead$",
	},
	{
		name: "a log that is cleaned up while it is read is not read again",
		file: "sink/delta/refresh.go",
		old:  "if errors.Is(err, deltalog.ErrCorrupt) { // an", new: "if false { // an",
		pkg: "./sink/delta", test: "^TestRefresh_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "a follower of a table takes a hole in its log for the end",
		file: "sink/delta/follow.go",
		old:  "deltalog.End(ctx, f.store, f.state, s, at)", new: "deltalog.End(ctx, f.store, s, s, s.ReadAt)",
		pkg: "./sink/delta", test: "^TestFollower_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "a search for a canary row takes a hole in the log for the end",
		file: "sink/delta/rowfinder.go",
		old:  "!errors.Is(err, deltalog.ErrCorrupt) {", new: "err == nil || err != nil {",
		pkg: "./sink/delta", test: "^TestFollower_StoppedWhileTheLogIsCleanedUp$",
	},
	{
		name: "data files of any age are committed",
		file: "sink/delta/commit.go",
		old:  "case time.Since(files.at) > maxStaged || time.Since(files.at.Round(0)) > maxStaged:", new: "case false:",
		pkg: "./sink/delta", test: "^TestOldFiles$",
	},

	// Positions that a table drops.
	{
		name: "positions in an idle table are not repeated and expire",
		file: "sink/delta/keep.go",
		old:  "\tif n == 0 {\n\t\treturn nil\n\t}", new: "\tif n >= 0 {\n\t\treturn nil\n\t}",
		pkg: "./sink/delta", test: "^TestTable_RepeatsTxns$",
	},
	{
		name: "commits do not repeat the positions of idle partitions",
		file: "sink/delta/keep.go",
		old:  "for _, x := range t.dueTxns(now) {", new: "for _, x := range t.dueTxns(now)[:0] {",
		pkg: "./sink/delta", test: "^TestTable_RepeatsTxns$",
	},
	{
		name: "a repetition of txns sets a moved position back",
		file: "sink/delta/keep.go",
		old:  "t.Commit(ctx, &connector.Commit{Operation: operationKeep}, func", new: "t.Commit(ctx, &connector.Commit{Operation: operationKeep, Txns: t.dueTxns(time.Now())}, func",
		pkg: "./sink/delta", test: "^TestTable_RepeatsTxns_BesideAMove$",
	},
	{
		name: "a table that drops positions before Kafka drops records is accepted",
		file: "sink/delta/keep.go",
		old:  "case kept >= needed:", new: "case kept >= 0:",
		pkg: "./sink/delta", test: "^TestTable_RetentionOfTopics$",
	},
	{
		name: "the shortest retention of a table's topics counts, not the longest",
		file: "internal/app/dataloss.go",
		old:  "longest = max(longest, time.Duration", new: "longest = min(longest, time.Duration",
		pkg: "./internal/app", test: "^TestSecondsToDataLoss$",
	},

	// Rows without a position.
	{
		name: "a topic with rows but no position gets an initial commit",
		file: "connector/commit/searchrows.go",
		old:  "\t\t\tcase found:\n", new: "\t\t\tcase found && i.Added:\n",
		pkg: "./test/story", test: "^TestRowsWithoutAPosition$",
	},
	{
		name: "a table is searched at each check for rows that were found before",
		file: "connector/commit/searchrows.go",
		old:  "time.Since(f.at) >= rowsFoundValid {", new: "time.Since(f.at) >= time.Second {",
		pkg: "./test/story", test: "^TestRowsWithoutAPosition$",
	},
	{
		name: "a file with rows of many topics is never searched",
		file: "sink/delta/scan/present.go",
		old:  "if thorough || of.Partition", new: "if of.Partition",
		pkg: "./sink/delta", test: "^TestTable_HasRows$",
	},
	{
		name: "a file counts for a topic only because its name is a bound of it",
		file: "sink/delta/scan/present.go",
		old:  "b.topicLow == b.topicHigh &&", new: "b.topicLow <= b.topicHigh &&",
		pkg: "./sink/delta", test: "^TestTable_HasRows$",
	},
	{
		name: "a table that drops positions is searched only by statistics",
		file: "sink/delta/rows.go",
		old:  "thorough || expire)", new: "thorough || expire && thorough)",
		pkg: "./sink/delta", test: "^TestTable_HasRows$",
	},
	{
		name: "files whose statistics exclude a topic are read",
		file: "sink/delta/scan/prune.go",
		old:  "b.mayHoldTopic(w.Topic)\n\t})", new: "w.Topic != \"\"\n\t})",
		pkg: "./sink/delta", test: "^TestTable_HasRows$",
	},

	// Tables that are not written.
	{
		name: "a table with a newer writer version is accepted",
		file: "sink/delta/support.go",
		old:  "p.MinReaderVersion <= readerVersion && p.MinWriterVersion <= writerVersion &&", new: "p.MinReaderVersion <= readerVersion &&",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with a newer reader version is accepted",
		file: "sink/delta/support.go",
		old:  "p.MinReaderVersion <= readerVersion && p.MinWriterVersion", new: "p.MinWriterVersion",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with protocol features is accepted",
		file: "sink/delta/support.go",
		old:  "&& len(p.ReaderFeatures)+len(p.WriterFeatures) == 0 {", new: "{",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table whose files are not Parquet is accepted",
		file: "sink/delta/support.go",
		old:  "if m.Format.Provider != \"\" &&", new: "if m.Format.Provider == \"\" &&",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with unsupported properties is accepted",
		file: "sink/delta/support.go",
		old:  "if feature := propertyUnsupported(key, m.Configuration[key]); feature != \"\" {", new: "if feature := propertyUnsupported(key, m.Configuration[key]); feature == key {",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with unsupported columns is accepted",
		file: "sink/delta/support.go",
		old:  "if err := columns.Unsupported(); err != nil {", new: "if err := columns.Unsupported(); err == nil && columns == nil {",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table without the columns of Kafka's coordinates is accepted",
		file: "sink/delta/support.go",
		old:  "if err := columns.HasKafkaColumns(); err != nil {", new: "if err := columns.HasKafkaColumns(); err == nil && columns == nil {",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with constraints is accepted",
		file: "sink/delta/support.go",
		old:  "strings.HasPrefix(key, \"delta.constraints.\"):", new: "key == \"delta.constraints.\":",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with a feature set by a property is accepted",
		file: "sink/delta/support.go",
		old:  "strings.HasPrefix(key, \"delta.feature.\"):", new: "key == \"delta.feature.\":",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with coordinated commits is accepted",
		file: "sink/delta/support.go",
		old:  "strings.HasPrefix(key, \"delta.coordinatedCommits.\") && on:", new: "key == \"delta.coordinatedCommits.\":",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with column mapping is accepted",
		file: "sink/delta/support.go",
		old:  "case key == \"delta.columnMapping.mode\" && on:", new: "case key == \"delta.columnMapping.mode\" && !on:",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with checkpoints other than classic is accepted",
		file: "sink/delta/support.go",
		old:  "!strings.EqualFold(value, \"classic\"):", new: "strings.EqualFold(value, \"classic\"):",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table that drops positions after a week is accepted",
		file: "sink/delta/support.go",
		old:  "err != nil || d < properties.MinTxnRetention {", new: "err != nil || d < properties.MinTxnRetention/5 {",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table whose retention of positions cannot be parsed is accepted",
		file: "sink/delta/support.go",
		old:  "err != nil || d < properties.MinTxnRetention {", new: "err == nil && d < properties.MinTxnRetention {",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table that drops log entries within an hour is accepted",
		file: "sink/delta/support.go",
		old:  "err != nil || d < properties.MinLogRetention {", new: "err != nil || d < properties.MinLogRetention/2 {",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table whose log retention cannot be parsed is accepted",
		file: "sink/delta/support.go",
		old:  "err != nil || d < properties.MinLogRetention {", new: "err == nil && d < properties.MinLogRetention {",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with row tracking or Iceberg compatibility is accepted",
		file: "sink/delta/support.go",
		old:  "case slices.Contains(refusedIfOn, key) && on:", new: "case slices.Contains(refusedIfOn, key) && !on:",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a table with in-commit timestamps is accepted",
		file: "sink/delta/support.go",
		old:  " \"delta.enableInCommitTimestamps\",", new: " \"delta.enableInCommitTimestamp\",",
		pkg: "./sink/delta", test: "^TestSupported$",
	},
	{
		name: "a refused table stays refused after its properties changed",
		file: "sink/delta/support.go",
		old:  "maps.Equal(a.Metadata.Configuration, b.Metadata.Configuration) &&", new: "len(b.Metadata.Configuration) >= 0 &&",
		pkg: "./sink/delta", test: "^TestRefusalEnds$",
	},
	{
		name: "rows built for another implementation of the schema fit",
		file: "connector/schema/fits.go",
		old:  "\tif !ok {\n\t\treturn conflict(\"rows were built", new: "\tif ok && rows == nil {\n\t\treturn conflict(\"rows were built",
		pkg: "./connector/schema", test: "^TestFitsPartitionsAndKinds$",
	},
	{
		name: "rows fit a table with other partition columns",
		file: "connector/schema/fits.go",
		old:  "if err := s.partitionsFit(rows); err != nil {", new: "if err := s.partitionsFit(rows); err != nil && s == rows {",
		pkg: "./connector/schema", test: "^TestFitsPartitionsAndKinds$",
	},
	{
		name: "rows fit a table that lacks their column",
		file: "connector/schema/fits.go",
		old:  "\t\tcase !ok:\n", new: "\t\tcase !ok && above == \"none\":\n",
		pkg: "./connector/schema", test: "^TestFits$",
	},
	{
		name: "rows with nulls fit a column that is NOT NULL",
		file: "connector/schema/fits.go",
		old:  "if r.Nullable && !f.Nullable {", new: "if r.Nullable && !f.Nullable && above == \"\" {",
		pkg: "./connector/schema", test: "^TestFits$",
	},
	{
		name: "rows fit a table that got a column that is NOT NULL",
		file: "connector/schema/fits.go",
		old:  "added && !f.Nullable {", new: "added && !f.Nullable && above != \"\" {",
		pkg: "./connector/schema", test: "^TestFits$",
	},
	{
		name: "rows fit a column of another type",
		file: "connector/schema/fits.go",
		old:  "case table.Kind != rows.Kind,", new: "case table.Kind != rows.Kind && rows.Kind == Struct,",
		pkg: "./connector/schema", test: "^TestFits$",
	},
	{
		name: "fields of a struct need not fit",
		file: "connector/schema/fits.go",
		old:  "\tcase rows.Kind == Struct:\n\t\treturn fieldsFit(table.Fields, rows.Fields, path+\".\")", new: "\tcase rows.Kind == Struct:\n\t\treturn nil",
		pkg: "./connector/schema", test: "^TestFits$",
	},
	{
		name: "lists with nulls fit elements that are NOT NULL",
		file: "connector/schema/fits.go",
		old:  "case rows.ElementNullable && !table.ElementNullable:", new: "case rows.ElementNullable && table.ElementNullable && path == \"\":",
		pkg: "./connector/schema", test: "^TestFitsLists$",
	},
	{
		name: "elements of a list need not fit",
		file: "connector/schema/fits.go",
		old:  "return typeFits(*table.Element, *rows.Element, path+inside(rows.Kind))", new: "return nil",
		pkg: "./connector/schema", test: "^TestFits$",
	},
	{
		name: "a table is accepted although values of its partition columns cannot be computed",
		file: "connector/schema/fits.go",
		old:  "_, err := s.Expressions()\n\treturn err", new: "_, _ = s.Expressions()\n\treturn nil",
		pkg: "./connector/schema", test: "^TestUnsupported$",
	},
	{
		name: "a NOT NULL column that rows cannot fill is accepted",
		file: "connector/schema/fits.go",
		old:  "if !written && !f.Nullable {", new: "if written && !f.Nullable && above == \"none\" {",
		pkg: "./connector/schema", test: "^TestUnsupported$",
	},
	{
		name: "features in the metadata of a column are ignored",
		file: "connector/schema/fits.go",
		old:  "feature := f.feature(written); feature != \"\" {", new: "feature := f.feature(written); feature == \"none\" {",
		pkg: "./connector/schema", test: "^TestUnsupported$",
	},
	{
		name: "features of fields within a column are ignored",
		file: "connector/schema/fits.go",
		old:  "if err := typeUnsupported(f.Type, path); err != nil {", new: "if err := typeUnsupported(f.Type, path); err != nil && above == \"none\" {",
		pkg: "./connector/schema", test: "^TestUnsupported$",
	},
	{
		name: "a column with invariants is accepted",
		file: "connector/schema/fits.go",
		old:  "case key == \"delta.invariants\":", new: "case key == \"delta.invariant\":",
		pkg: "./connector/schema", test: "^TestUnsupported$",
	},
	{
		name: "a generated column is accepted",
		file: "connector/schema/fits.go",
		old:  "case key == \"delta.generationExpression\":", new: "case key == \"delta.generation\":",
		pkg: "./connector/schema", test: "^TestUnsupported$",
	},
	{
		name: "an identity column is accepted",
		file: "connector/schema/fits.go",
		old:  "\"delta.identity.\"):", new: "\"delta.identities.\"):",
		pkg: "./connector/schema", test: "^TestUnsupported$",
	},
	{
		name: "a column with column mapping is accepted",
		file: "connector/schema/fits.go",
		old:  "\"delta.columnMapping.\"):", new: "\"delta.columnMapped.\"):",
		pkg: "./connector/schema", test: "^TestUnsupported$",
	},
	{
		name: "a CHAR or VARCHAR column is accepted",
		file: "connector/schema/fits.go",
		old:  "case key == \"__CHAR_VARCHAR_TYPE_STRING\":", new: "case key == \"__CHAR\":",
		pkg: "./connector/schema", test: "^TestUnsupported$",
	},
	{
		name: "a column with a default that rows do not fill is accepted",
		file: "connector/schema/fits.go",
		old:  "case key == \"CURRENT_DEFAULT\" && !written:", new: "case key == \"CURRENT_DEFAULT\" && written:",
		pkg: "./connector/schema", test: "^TestUnsupported$",
	},

	// Responses of S3.
	{
		name: "any 404 means that the object does not exist",
		file: "sink/delta/objstore/s3errors.go",
		old:  "status == http.StatusNotFound && s3Missing[code] && !put:", new: "status == http.StatusNotFound && !put:",
		pkg: "./sink/delta/objstore", test: "^TestS3NotFound_WithoutACode$",
	},
	{
		name: "an error code that the SDK derived from the status counts",
		file: "sink/delta/objstore/s3errors.go",
		old:  "ok && !derived(api, status) {", new: "ok {",
		pkg: "./sink/delta/objstore", test: "^TestS3NotFound_WithoutACode$",
	},
	{
		name: "a HEAD with 404 alone means that the object does not exist",
		file: "sink/delta/objstore/s3.go",
		old:  "failed(OpHead, key, s.missing(ctx, key))", new: "failed(OpHead, key, errNotFound)",
		pkg: "./sink/delta/objstore", test: "^TestS3Head_NotFound$",
	},
	{
		name: "a PUT with a 404 counts as refused, although its outcome is unknown",
		file: "sink/delta/objstore/s3errors.go",
		old:  "case status == http.StatusNotFound: // the", new: "case status == http.StatusNotFound && !put: // the",
		pkg: "./sink/delta/objstore", test: "^TestS3NotFound_WithoutACode$",
	},

	// Statistics.
	{
		name: "an excluded column has bounds in the footers",
		file: "sink/delta/datafile/bounds.go",
		old:  "if !s.seen || c.statistics == NoBounds {", new: "if !s.seen {",
		pkg: "./sink/delta/datafile", test: "^TestFooterAndLog$",
	},
	{
		name: "an excluded column has statistics in the log",
		file: "sink/delta/statistics.go",
		old:  "case slices.ContainsFunc(excluded, below):", new: "case slices.ContainsFunc(excluded, below) && !indexed(leaf.Path, n):",
		pkg: "./sink/delta", test: "^TestStatistics$",
	},
	{
		name: "partition columns count as indexed columns",
		file: "sink/delta/statistics.go",
		old:  "\t\t\tcontinue\n\t\t}\n\t\ts := datafile.InFooter", new: "\t\t\tn++\n\t\t\tcontinue\n\t\t}\n\t\ts := datafile.InFooter",
		pkg: "./sink/delta", test: "^TestStatistics$",
	},
	{
		name: "the footer has one of two bounds of a text",
		file: "sink/delta/datafile/bounds.go",
		old:  "if fits(s.minBytes, c.kind) && fits(s.maxBytes, c.kind) {", new: "if fits(s.minBytes, c.kind) || fits(s.maxBytes, c.kind) {",
		pkg: "./sink/delta/datafile", test: "^TestRoundTrip$",
	},

	// Table partitions.
	{
		name: "a row lies in the file of another table partition",
		file: "sink/delta/datafile/partition.go",
		old:  "s.order[next[id]] = rowRef{of[i], int32(row)}", new: "s.order[len(s.order)-1-next[id]] = rowRef{of[i], int32(row)}",
		pkg: "./sink/delta/datafile", test: "^TestPartitions$",
	},
	{
		name: "a file has rows of two table partitions",
		file: "sink/delta/datafile/datafile.go",
		old:  "i+1 == len(chunks) || chunks[i+1].partition != chunks[i].partition", new: "i+1 == len(chunks)",
		pkg: "./sink/delta/datafile", test: "^TestPartitions$",
	},
	{
		name: "a slash of a value makes a directory",
		file: "sink/delta/partition.go",
		old:  "\"\\\"#%'*/:=", new: "\"\\\"#%'*:=",
		pkg: "./sink/delta", test: "^TestDirectory$",
	},
	{
		name: "the text for null is a value of a partition column",
		file: "connector/decode/partition.go",
		old:  "if string(text) == schema.NullPartition || ", new: "if ",
		pkg: "./connector/decode", test: "^TestErrors$",
	},
	{
		name: "a table with other partitions than configured is accepted",
		file: "connector/schema/extend.go",
		old:  "if err := s.partitionsFit(add); err != nil {", new: "if err := s.partitionsFit(add); err != nil && s == add {",
		pkg: "./sink/delta", test: "^TestPartitioned_AnotherConfiguration$",
	},
	{
		name: "a timestamp after the year 9999 is a value of a partition column",
		file: "connector/schema/partition.go",
		old:  "micros < (lastDay+1)*day", new: "micros < 2*(lastDay+1)*day",
		pkg: "./connector/decode", test: "^TestPartitionValues$",
	},
	{
		name: "a configuration without partition_by does not accept the partitions of its table",
		file: "connector/schema/kafka.go",
		old:  "configured = configured.WithPartitionsOf(s)", new: "configured = configured.WithPartitionsOf(configured)",
		pkg: "./sink/delta", test: "^TestPartitioned_(Table|AddColumns)$",
	},
	{
		name: "a column that the table computes may be declared",
		file: "connector/schema/kafka.go",
		old:  "if err := s.computedAlone(configured); err != nil {", new: "if err := s.computedAlone(s); err != nil {",
		pkg: "./connector/schema", test: "^TestForRows_Partitioned$",
	},
	{
		name: "rows fit a table that computes a partition column in another way",
		file: "connector/schema/partition.go",
		old:  "slices.Equal(s.describePartitions(), rows.describePartitions())", new: "slices.Equal(s.partitions, rows.partitions)",
		pkg: "./connector/schema", test: "^TestForRows_Partitioned$",
	},
	{
		name: "the memory for sorting rows is not taken from the batch pool",
		file: "connector/decode/json.go",
		old:  "idempotency.IDBytes(d.entries) + d.parts.size(d.rows)", new: "idempotency.IDBytes(d.entries) + d.parts.size(0)",
		pkg: "./connector/decode", test: "^TestPartitionMemory$",
	},
	{
		name: "rows have a computed partition column, so that a field of the record fills it",
		file: "connector/schema/schema.go",
		old:  "slices.DeleteFunc(writtenFields(s.fields), s.computed)", new: "writtenFields(s.fields)",
		pkg: "./connector/schema", test: "^(TestWithPartitionBy|TestForRows_Partitioned)$",
	},
}
