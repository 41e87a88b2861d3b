package main

import (
	"testing"
	"time"

	"sluice/internal/admin"
)

// TestProgress: long reads say how far they are, and end with all of their work.
func TestProgress(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 40)
	for name, work := range map[string]func(a *admin.Access) error{
		"verify": func(a *admin.Access) error {
			all, end, err := admin.OpenTables(t.Context(), a, "")
			if err == nil {
				defer end()
				_, err = admin.Verify(t.Context(), all[0], false, time.Minute)
			}
			return err
		},
		"verify with Kafka": func(a *admin.Access) error {
			all, end, err := admin.OpenTables(t.Context(), a, "")
			if err == nil {
				defer end()
				_, err = admin.Verify(t.Context(), all[0], true, time.Minute)
			}
			return err
		},
	} {
		var done, of []int64
		a := &admin.Access{Config: mustLoad(t, l.Config, nil), Progress: func(d, n int64) { done, of = append(done, d), append(of, n) }}
		if err := work(a); err != nil {
			t.Fatal(err)
		}
		last := len(done) - 1
		if last < 1 || done[last] != of[last] || of[last] != 80 || done[0] > done[last] {
			t.Errorf("%s: done %v of %v", name, done, of)
		}
	}
}
