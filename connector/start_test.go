package connector

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/reliability/hold"
)

func TestStartFirst(t *testing.T) {
	a, b, c := Partition{Topic: "orders", ID: 0}, Partition{Topic: "orders", ID: 1}, Partition{Topic: "orders", ID: 2}
	bounds := map[Partition]Bounds{
		a: {LogStart: 10, LastStable: 20, HighWatermark: 25},
		b: {LogStart: 0, LastStable: 0, HighWatermark: 0},
		c: {LogStart: 7, LastStable: 9, HighWatermark: 9},
	}
	for name, tc := range map[string]struct {
		start  Start
		at     map[Partition]int64
		want   map[Partition]int64
		reason hold.Reason
		detail string
	}{
		"zero":     {Start{}, nil, map[Partition]int64{a: 10, b: 0, c: 7}, "", ""},
		"earliest": {Start{Policy: StartEarliest}, nil, map[Partition]int64{a: 10, b: 0, c: 7}, "", ""},
		"latest":   {Start{Policy: StartLatest}, nil, map[Partition]int64{a: 20, b: 0, c: 9}, "", ""},
		"a time: a partition without such a record starts at its last stable offset": {
			Start{Policy: StartTimestamp}, map[Partition]int64{a: 15}, map[Partition]int64{a: 15, b: 0, c: 9}, "", "",
		},
		"a time, and the record is deleted meanwhile": {
			Start{Policy: StartTimestamp}, map[Partition]int64{a: 9, c: 8}, map[Partition]int64{a: 10, b: 0, c: 8}, "", "",
		},
		"offsets, the others earliest": {
			Start{Policy: StartExplicit, Offsets: map[int32]int64{0: 12}}, nil, map[Partition]int64{a: 12, b: 0, c: 7}, "", "",
		},
		"offsets at the very ends, the others latest": {
			Start{Policy: StartExplicit, Offsets: map[int32]int64{0: 25, 2: 7}, Others: StartLatest},
			nil,
			map[Partition]int64{a: 25, b: 0, c: 7},
			"", "",
		},
		"before the log": {
			Start{Policy: StartExplicit, Offsets: map[int32]int64{0: 9}}, nil, nil, hold.BehindLogStart, "orders:0 to offset 9, but its log is [10, 25]",
		},
		"after the log": {
			Start{Policy: StartExplicit, Offsets: map[int32]int64{1: 1}}, nil, nil, hold.AheadOfLogEnd, "orders:1 to offset 1, but its log is [0, 0]",
		},
		"no such partition": {
			Start{Policy: StartExplicit, Offsets: map[int32]int64{3: 0}}, nil, nil, hold.AheadOfLogEnd, "names partition 3, but the topic has 3 partitions",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.start.First(bounds, tc.at)
			if tc.reason != "" {
				held := (*hold.Error)(nil)
				if !errors.As(err, &held) || held.Reason != tc.reason || !strings.Contains(held.Detail, tc.detail) {
					t.Fatalf("got %v, %v, want the hold %s: %s", got, err, tc.reason, tc.detail)
				}
				return
			}
			if d := cmp.Diff(tc.want, got); d != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, d)
			}
		})
	}
}

func TestStartString(t *testing.T) {
	for want, s := range map[string]Start{
		"earliest":                          {},
		"latest":                            {Policy: StartLatest},
		"timestamp 24h0m0s back":            {Policy: StartTimestamp, Back: 24 * time.Hour},
		"timestamp 2026-01-31T08:00:00Z":    {Policy: StartTimestamp, At: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)},
		"explicit 0:12 2:9 others:earliest": {Policy: StartExplicit, Offsets: map[int32]int64{2: 9, 0: 12}},
		"explicit 0:12 others:latest":       {Policy: StartExplicit, Offsets: map[int32]int64{0: 12}, Others: StartLatest},
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
