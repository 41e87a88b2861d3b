package deltalog

import (
	"time"

	"sluice/sink/delta/properties"
)

const (
	propCheckpointInterval = "delta.checkpointInterval"
	propFileRetention      = "delta.deletedFileRetentionDuration"
	fileRetention          = 7 * 24 * time.Hour // the default that the protocol gives
)

// tombstonesUntil returns the time before which a removed file's tombstone may be dropped. If the table's property
// cannot be parsed, all tombstones stay.
func (s *State) tombstonesUntil(now time.Time) time.Time {
	keep := fileRetention
	if text, ok := s.Metadata.Configuration[propFileRetention]; ok {
		d, err := properties.ParseInterval(text)
		if err != nil {
			return time.Time{}
		}
		keep = d
	}
	return now.Add(-keep)
}
