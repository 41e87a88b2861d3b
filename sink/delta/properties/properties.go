// Package properties has the table properties that Sluice sets when it creates a table. It is pure.
package properties

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// MinTxnRetention is the shortest delta.setTransactionRetentionDuration that is accepted: writers of checkpoints
	// drop older txns, and the positions in them.
	MinTxnRetention = 30 * 24 * time.Hour
	// MinLogRetention is the shortest delta.logRetentionDuration that is accepted. A commit takes a missing version for
	// one that never existed if the version before it was seen within the last minute: no cleanup may be that fast.
	MinLogRetention = time.Hour
)

const prefix = "delta."

// settable are the properties of Delta that a new table can get, with the check of their values.
var settable = map[string]func(value string) error{
	"delta.appendOnly":                      boolean,
	"delta.autoOptimize.autoCompact":        boolean,
	"delta.autoOptimize.optimizeWrite":      boolean,
	"delta.checkpointInterval":              number(1),
	"delta.dataSkippingStatsColumns":        names,
	"delta.dataSkippingNumIndexedCols":      number(-1),
	"delta.dataSkippingStringPrefixLength":  number(1),
	"delta.deletedFileRetentionDuration":    interval(0),
	"delta.enableExpiredLogCleanup":         boolean,
	"delta.logRetentionDuration":            interval(MinLogRetention),
	"delta.setTransactionRetentionDuration": interval(MinTxnRetention),
	"delta.targetFileSize":                  number(1),
	"delta.enableChangeDataFeed":            off,
	"delta.enableDeletionVectors":           off,
	"delta.enableInCommitTimestamps":        off,
	"delta.enableRowTracking":               off,
	"delta.enableTypeWidening":              off,
	"delta.universalFormat.enabledFormats":  nil,
	"delta.minReaderVersion":                nil,
	"delta.minWriterVersion":                nil,
	"delta.checkpointPolicy":                nil,
	"delta.enableIcebergCompatV1":           nil,
	"delta.enableIcebergCompatV2":           nil,
	"delta.enableIcebergCompatV3":           nil,
	"delta.enableVariantShredding":          nil,
}

// Check returns nil if a new table can get the property. Properties that other programs read may have any value. Of
// those of Delta, which begin with "delta.", it accepts the ones that this version follows, or that concern other
// programs alone. The others would change the protocol of the table, or oblige its writers to what this version does
// not do.
func Check(key, value string) error {
	if key == "" || strings.ContainsFunc(key, unicode.IsControl) {
		return fmt.Errorf("%q is no name of a property: write one such as delta.appendOnly", key)
	}
	if !strings.HasPrefix(strings.ToLower(key), prefix) {
		return nil
	}
	check, known := settable[key]
	switch {
	case !known && !obliges(key):
		for name := range settable {
			if strings.EqualFold(name, key) {
				return fmt.Errorf("%s: write %s", key, name)
			}
		}
		return fmt.Errorf("%s is not a property that this version sets: write one of %s, or a name that does not begin with %s", key, list(), prefix)
	case check == nil:
		return fmt.Errorf("%s would change the table's protocol, or oblige writers to what this version does not do: remove it", key)
	}
	if err := check(value); err != nil {
		return fmt.Errorf("%s is %q: %w", key, value, err)
	}
	return nil
}

// obliges reports whether a key belongs to a family of properties that need a feature of the protocol.
func obliges(key string) bool {
	for _, family := range []string{"delta.feature.", "delta.constraints.", "delta.coordinatedCommits.", "delta.columnMapping.", "delta.rowTracking.", "delta.inCommitTimestamp"} {
		if strings.HasPrefix(key, family) {
			return true
		}
	}
	return false
}

// list returns the names that can be set, in order.
func list() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(settable)) {
		if settable[name] != nil {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func boolean(value string) error {
	if value != "true" && value != "false" {
		return errors.New("write true or false")
	}
	return nil
}

func names(value string) error {
	if strings.TrimSpace(value) == "" {
		return errors.New("write names of columns with commas between them")
	}
	return nil
}

// off accepts a property only as false, which other programs may want to read, and which needs no feature.
func off(value string) error {
	if value != "false" {
		return errors.New("true needs a feature that this version does not write: write false, or remove it")
	}
	return nil
}

func number(least int64) func(string) error {
	return func(value string) error {
		if n, err := strconv.ParseInt(value, 10, 32); err != nil || n < least || strconv.FormatInt(n, 10) != value {
			return fmt.Errorf("write a whole number from %d on", least)
		}
		return nil
	}
}

func interval(least time.Duration) func(string) error {
	return func(value string) error {
		switch d, err := ParseInterval(value); {
		case err != nil || !strings.HasPrefix(value, "interval "):
			return errors.New("write an interval such as interval 7 days")
		case d < least && least >= 24*time.Hour:
			return fmt.Errorf("write %d days or more", least/(24*time.Hour))
		case d < least:
			return fmt.Errorf("write %d hour or more", least/time.Hour)
		}
		return nil
	}
}
