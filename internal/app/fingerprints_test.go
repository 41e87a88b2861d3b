package app

import (
	"testing"

	"sluice/internal/config"
)

func TestOnlyPostgresKeepsIDs(t *testing.T) {
	for store, want := range map[string]bool{"memory": false, "postgres": true} {
		s := &Member{config: &config.Config{Fingerprints: config.Fingerprints{Store: store}}}
		if d := s.duplicates(config.Topic{Identity: config.Identity{By: "field:id"}}); d.IDs != want {
			t.Errorf("%s: %v", store, d.IDs)
		}
	}
}
