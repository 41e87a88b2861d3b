package delta

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice/connector/schema"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/properties"
)

// The protocol that this version writes: reader version 1 and writer version 2, without features.
const (
	readerVersion = 1
	writerVersion = 2
)

// legacyFeatures are the features that each writer version without feature lists adds to the version before it.
var legacyFeatures = map[int32][]string{
	3: {"checkConstraints"}, 4: {"changeDataFeed", "generatedColumns"}, 5: {"columnMapping"}, 6: {"identityColumns"},
}

// supported returns the schema of a table that this version may write. Otherwise the error is a hold.Error:
// hold.TableUnsupported with the name of the feature, or hold.SchemaConflict if the Kafka columns are missing.
func supported(s *deltalog.State) (*schema.Schema, error) {
	if err := protocolSupported(s.Protocol); err != nil {
		return nil, err
	}
	m := s.Metadata
	if m.Format.Provider != "" && m.Format.Provider != "parquet" {
		return nil, unsupported("its data files are %s", m.Format.Provider)
	}
	for _, key := range slices.Sorted(maps.Keys(m.Configuration)) {
		if feature := propertyUnsupported(key, m.Configuration[key]); feature != "" {
			return nil, unsupported("it has %s", feature)
		}
	}
	columns, err := schema.FromDelta([]byte(m.SchemaString))
	if err != nil {
		return nil, hold.New(hold.TableUnsupported, "the schema in the table's log cannot be read", err)
	}
	columns = columns.WithPartitions(m.PartitionColumns)
	if err := columns.Unsupported(); err != nil {
		return nil, err
	}
	if err := columns.HasKafkaColumns(); err != nil {
		return nil, err
	}
	return columns, nil
}

func protocolSupported(p deltalog.Protocol) error {
	if p.MinReaderVersion <= readerVersion && p.MinWriterVersion <= writerVersion && len(p.ReaderFeatures)+len(p.WriterFeatures) == 0 {
		return nil
	}
	features := slices.Concat(p.ReaderFeatures, p.WriterFeatures)
	if p.MinWriterVersion < 7 {
		for v := range p.MinWriterVersion + 1 {
			features = append(features, legacyFeatures[v]...)
		}
	}
	slices.Sort(features)
	names := strings.Join(slices.Compact(features), ", ")
	if names == "" {
		names = "no feature by name"
	}
	return unsupported("its protocol is reader %d, writer %d: %s", p.MinReaderVersion, p.MinWriterVersion, names)
}

// propertyUnsupported returns what a table property requires of writers, as a text for errors, if this version does not
// do that. It returns "" if the property is no obstacle.
func propertyUnsupported(key, value string) string {
	on := value != "" && !strings.EqualFold(value, "false") && !strings.EqualFold(value, "none")
	switch {
	case strings.HasPrefix(key, "delta.constraints."):
		return fmt.Sprintf("a CHECK constraint (%s)", key)
	case strings.HasPrefix(key, "delta.feature."):
		return fmt.Sprintf("a feature (%s)", key)
	case strings.HasPrefix(key, "delta.coordinatedCommits.") && on:
		return fmt.Sprintf("commits that go through another service (%s)", key)
	case key == "delta.columnMapping.mode" && on:
		return "column mapping (delta.columnMapping.mode)"
	case key == "delta.checkpointPolicy" && on && !strings.EqualFold(value, "classic"):
		return "checkpoints of another kind (delta.checkpointPolicy)"
	case key == propTxnRetention:
		if d, err := properties.ParseInterval(value); err != nil || d < properties.MinTxnRetention {
			return fmt.Sprintf("%s = %q, after which positions may be dropped; unset it, or set 30 days or more and at least as long as Kafka keeps the topic", key, value)
		}
	case key == "delta.logRetentionDuration":
		if d, err := properties.ParseInterval(value); err != nil || d < properties.MinLogRetention {
			return fmt.Sprintf("%s = %q, after which a version that exists may be missing; unset it, or set 1 hour or more", key, value)
		}
	case slices.Contains(refusedIfOn, key) && on:
		return fmt.Sprintf("%s = %q", key, value)
	}
	return ""
}

// refusedIfOn are properties that oblige writers to do what this version does not do.
var refusedIfOn = []string{
	"delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2", "delta.enableIcebergCompatV3",
	"delta.universalFormat.enabledFormats", "delta.enableRowTracking", "delta.enableInCommitTimestamps",
}

// unsupported returns a hold.Error with hold.TableUnsupported.
func unsupported(format string, args ...any) error {
	detail := "the table is not one that this version writes: " + fmt.Sprintf(format, args...)
	return hold.New(hold.TableUnsupported, detail, nil)
}

// sameTable reports whether two versions agree in everything that [supported] checks.
func sameTable(a, b *deltalog.State) bool {
	return a.Protocol.MinReaderVersion == b.Protocol.MinReaderVersion && a.Protocol.MinWriterVersion == b.Protocol.MinWriterVersion &&
		slices.Equal(a.Protocol.ReaderFeatures, b.Protocol.ReaderFeatures) &&
		slices.Equal(a.Protocol.WriterFeatures, b.Protocol.WriterFeatures) &&
		a.Metadata.ID == b.Metadata.ID && a.Metadata.SchemaString == b.Metadata.SchemaString &&
		slices.Equal(a.Metadata.PartitionColumns, b.Metadata.PartitionColumns) &&
		maps.Equal(a.Metadata.Configuration, b.Metadata.Configuration) &&
		a.Metadata.Format.Provider == b.Metadata.Format.Provider
}

// intProperty parses an integer table property; ok is false if it is missing or out of range.
func intProperty(config map[string]string, key string, least, most int) (int, bool) {
	n, err := strconv.Atoi(config[key])
	return n, err == nil && n >= least && n <= most
}
