// Package tablelog reads a Delta table's log for tests, without the code under test.
package tablelog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Store has the objects of a table's log.
type Store interface {
	List(ctx context.Context, prefix string) ([]string, error)
	Get(ctx context.Context, key string) ([]byte, error)
	Create(ctx context.Context, key string, body []byte) error
}

// Log is the log of one table.
type Log struct {
	Store Store
	Table string // key of the table in the store

	commits []Commit // the commits read so far, which never change
}

// Commit is one version of a table.
type Commit struct {
	Version int64
	Info    Info
	Adds    []Add
	Txns    []Txn
	Schema  string // schemaString, if the commit has metadata
}

// Info is the commitInfo of a version.
type Info struct {
	Operation string          `json:"operation"`
	TxnID     string          `json:"txnId"`
	Sluice    json.RawMessage `json:"sluice"`
}

// Add is a data file.
type Add struct {
	Path            string             `json:"path"`
	PartitionValues map[string]*string `json:"partitionValues"`
	Size            int64              `json:"size"`
	Stats           string             `json:"stats"`
}

// Txn is the version that a commit sets for an application id: a position, an epoch or a mark.
type Txn struct {
	AppID   string `json:"appId"`
	Version int64  `json:"version"`
}

var commitName = regexp.MustCompile(`^(\d{20})\.json$`)

// Read returns all commits, oldest first. A hole in the versions is an error.
func (l *Log) Read(ctx context.Context) ([]Commit, error) {
	keys, err := l.Store.List(ctx, l.Table+"/_delta_log/")
	if err != nil {
		return nil, err
	}
	next := int64(0)
	for _, key := range keys {
		m := commitName.FindStringSubmatch(path.Base(key))
		if m == nil {
			continue
		}
		version, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil || version != next {
			return nil, fmt.Errorf("read the log of %s: found %s instead of version %d", l.Table, key, next)
		}
		if next++; version < int64(len(l.commits)) {
			continue
		}
		body, err := l.Store.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		commit, err := parse(version, body)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		l.commits = append(l.commits, commit)
	}
	return l.commits, nil
}

func parse(version int64, body []byte) (Commit, error) {
	c := Commit{Version: version}
	for line := range bytes.Lines(body) {
		var action struct {
			CommitInfo *Info
			Add        *Add
			Txn        *Txn
			MetaData   *struct{ SchemaString string }
		}
		if err := json.Unmarshal(line, &action); err != nil {
			return c, err
		}
		switch {
		case action.CommitInfo != nil:
			c.Info = *action.CommitInfo
		case action.Add != nil:
			c.Adds = append(c.Adds, *action.Add)
		case action.Txn != nil:
			c.Txns = append(c.Txns, *action.Txn)
		case action.MetaData != nil:
			c.Schema = action.MetaData.SchemaString
		}
	}
	return c, nil
}

// Rows returns how many rows the commit adds, by the statistics of its files.
func (c *Commit) Rows() int64 {
	var rows int64
	for _, add := range c.Adds {
		var stats struct {
			NumRecords int64 `json:"numRecords"`
		}
		if json.Unmarshal([]byte(add.Stats), &stats) == nil {
			rows += stats.NumRecords
		}
	}
	return rows
}

// Rows returns how many rows the commits add.
func Rows(commits []Commit) int64 {
	var rows int64
	for i := range commits {
		rows += commits[i].Rows()
	}
	return rows
}

// Partition returns the Kafka partition whose position has this AppID: the last part of kd1:<pipeline>:…:<partition>.
// It returns false for an AppID of another form, which is not that of a position.
func (t Txn) Partition() (int32, bool) {
	parts := strings.Split(t.AppID, ":")
	if len(parts) != 6 || parts[0] != "kd1" {
		return 0, false
	}
	n, err := strconv.ParseInt(parts[5], 10, 32)
	return int32(n), err == nil
}

// Positions returns the newest position of each Kafka partition.
func Positions(commits []Commit) map[int32]int64 {
	positions := make(map[int32]int64)
	for _, c := range commits {
		for _, txn := range c.Txns {
			if partition, ok := txn.Partition(); ok {
				positions[partition] = txn.Version
			}
		}
	}
	return positions
}

// Forge appends a commit that moves the position of a partition, as an operator's tool or a bug might.
func (l *Log) Forge(ctx context.Context, partition int32, position int64) error {
	commits, err := l.Read(ctx)
	if err != nil {
		return err
	}
	app := ""
	for _, c := range commits {
		for _, txn := range c.Txns {
			if p, ok := txn.Partition(); ok && p == partition {
				app = txn.AppID
			}
		}
	}
	if app == "" {
		return fmt.Errorf("forge a position: the table knows no partition %d", partition)
	}
	now := time.Now().UnixMilli()
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	for _, action := range []any{
		map[string]any{"commitInfo": map[string]any{"timestamp": now, "operation": "FORGED", "isBlindAppend": true, "operationParameters": map[string]any{}}},
		map[string]any{"txn": map[string]any{"appId": app, "version": position, "lastUpdated": now}},
	} {
		if err := enc.Encode(action); err != nil {
			return err
		}
	}
	return l.Store.Create(ctx, fmt.Sprintf("%s/_delta_log/%020d.json", l.Table, len(commits)), body.Bytes())
}
