package scan

import (
	"slices"
	"strings"

	"sluice/sink/delta/deltalog"
)

// readFeatures are the reader features that a table may have. Their names alone are no reason to refuse it. What is
// refused is a table with a column mapping mode, a file with a deletion vector, and a column of a data file with an
// unsuitable type.
var readFeatures = []string{
	"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "vacuumProtocolCheck",
}

// readable returns nil if this version can read the table. Otherwise it returns a hold.Error with hold.TableUnsupported
// that names what it cannot read.
func readable(s *deltalog.State) error {
	p := s.Protocol
	if p.MinReaderVersion > 3 {
		return unsupported("its protocol is reader %d", p.MinReaderVersion)
	}
	var unknown []string
	for _, feature := range p.ReaderFeatures {
		if !slices.Contains(readFeatures, feature) {
			unknown = append(unknown, feature)
		}
	}
	if len(unknown) > 0 {
		return unsupported("its readers must know the features %s", strings.Join(unknown, ", "))
	}
	if mode := s.Metadata.Configuration["delta.columnMapping.mode"]; mode != "" && !strings.EqualFold(mode, "none") {
		return unsupported("it has column mapping (delta.columnMapping.mode)")
	}
	if provider := s.Metadata.Format.Provider; provider != "" && provider != "parquet" {
		return unsupported("its data files are %s", provider)
	}
	return nil
}
