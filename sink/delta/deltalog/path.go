package deltalog

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Dir is the directory of the log below the table.
const Dir = "_delta_log/"

// lastCheckpoint is the hint to the newest checkpoint.
const lastCheckpoint = Dir + "_last_checkpoint"

// CommitKey returns the object key of a version.
func CommitKey(version int64) string { return fmt.Sprintf("%s%020d.json", Dir, version) }

// CheckpointKey returns the object key of a classic checkpoint in one file.
func CheckpointKey(version int64) string {
	return fmt.Sprintf("%s%020d.checkpoint.parquet", Dir, version)
}

// partKey returns the object key of one part of a checkpoint in several parts, counted from 1. This package reads such
// checkpoints and never writes them.
func partKey(version int64, part, parts int) string {
	return fmt.Sprintf("%s%020d.checkpoint.%010d.%010d.parquet", Dir, version, part, parts)
}

// before returns a key that sorts after all files of versions below version and before those of version itself.
func before(version int64) string { return fmt.Sprintf("%s%020d", Dir, version) }

// maxVersion is the largest version that this package accepts. JSON readers represent every integer up to it exactly.
// A log with one version per millisecond would need 285 000 years to reach it.
const maxVersion = 1<<53 - 1

// logFile is a file of the log, identified by its name.
type logFile struct {
	version     int64
	checkpoint  bool
	part, parts int // number of the part, and of all parts; 1 of 1 for a classic checkpoint
}

// parseName identifies a file of the log by its key. ok is false for files that this package does not read
// (checksums, compacted commits, checkpoints with a UUID, sidecars, other programs' files). They are ignored, even if
// they name an absurd version.
//
// The error is [ErrCorrupt] for a commit or checkpoint whose version no real log reaches. It must not be ignored:
// other readers take it for a version, and fail or read a different table.
func parseName(key string) (f logFile, ok bool, err error) {
	name, ok := strings.CutPrefix(key, Dir)
	if !ok || len(name) < 21 || name[20] != '.' || strings.Trim(name[:20], "0123456789") != "" {
		return f, false, nil
	}
	switch rest := strings.Split(name[21:], "."); {
	case len(rest) == 1 && rest[0] == "json":
	case len(rest) == 2 && rest[0] == "checkpoint" && rest[1] == "parquet":
		f.checkpoint, f.part, f.parts = true, 1, 1
	case len(rest) == 4 && rest[0] == "checkpoint" && len(rest[1]) == 10 && len(rest[2]) == 10 && rest[3] == "parquet":
		part, ok1 := number(rest[1])
		parts, ok2 := number(rest[2])
		f.checkpoint, f.part, f.parts = true, int(part), int(parts)
		if !ok1 || !ok2 || part < 1 || part > parts {
			return f, false, nil
		}
	default:
		return f, false, nil
	}
	if f.version, ok = number(name[:20]); !ok || f.version > maxVersion {
		return f, false, corrupt("object %s names a version that no log reaches (the largest is %d): delete the object", key, int64(maxVersion))
	}
	return f, true, nil
}

// number parses a number of digits only; ok is false for anything else.
func number(s string) (int64, bool) {
	if strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// URI returns the path of an add for an object key relative to the table: the key in URI encoding (RFC 2396), which
// readers decode once.
func URI(key string) string { return (&url.URL{Path: key}).EscapedPath() }

// Key returns the object key for the path of an add or remove. A path that is not a URI is used unchanged.
func Key(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	if key, err := url.PathUnescape(path); err == nil {
		return key
	}
	return path
}
