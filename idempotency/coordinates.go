// Package idempotency identifies records, so that a repeated read never becomes a second row.
//
// A record is identified by its coordinates: cluster, topic id, partition and offset. The position of a partition is in
// the table's log, as the txn with the partition's appId.
package idempotency

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// scheme starts every appId that Sluice writes; the number changes if the meaning of appIds ever changes.
const scheme = "kd1"

// TopicID is the UUID that Kafka gives a topic at its creation (KIP-516). A topic that is deleted and created again
// under its old name has another one. Zero means unknown.
type TopicID [16]byte

// String renders the id as Kafka's own tools do (base64 for URLs, no padding), and the unknown id as "-".
func (id TopicID) String() string {
	if id == (TopicID{}) {
		return "-"
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// ParseTopicID reads what [TopicID.String] wrote.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	if s == "-" {
		return id, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("topic id %q is not a Kafka UUID", s)
	}
	copy(id[:], b)
	return id, nil
}

// Partition is a partition of a topic as it exists in one cluster. If a topic is deleted and created again, it has
// other partitions. A Partition can be a map key.
type Partition struct {
	Cluster string // Kafka's cluster id, "" if it is unknown
	Topic   string
	TopicID TopicID
	ID      int32
}

// String returns TOPIC:PARTITION, such as orders:3: the notation of every command, log line and error.
func (p Partition) String() string { return p.Topic + ":" + strconv.Itoa(int(p.ID)) }

// Compare orders partitions by topic and number, then by cluster and topic id.
func (p Partition) Compare(o Partition) int {
	return cmp.Or(
		strings.Compare(p.Topic, o.Topic), cmp.Compare(p.ID, o.ID),
		strings.Compare(p.Cluster, o.Cluster), bytes.Compare(p.TopicID[:], o.TopicID[:]))
}

// Coordinates identify a record.
type Coordinates struct {
	Partition
	Offset int64
}

// String returns TOPIC:PARTITION@OFFSET, such as orders:3@17.
func (c Coordinates) String() string {
	return c.Partition.String() + "@" + strconv.FormatInt(c.Offset, 10)
}

// AppID is the key of the Delta txn that holds the position of p, which is the next offset to read:
//
//	kd1:<pipeline>:<cluster>:<topic>:<topic id>:<partition>
//
// Each part is URL-escaped, so that none can hold a colon; "-" stands for an unknown id.
func (p Partition) AppID(pipeline string) string {
	return strings.Join([]string{
		scheme, escape(pipeline), escape(p.Cluster), escape(p.Topic), p.TopicID.String(), strconv.Itoa(int(p.ID)),
	}, ":")
}

// TableAppID is the key of the Delta txn by which a pipeline marks the table that it started to write:
// kd1:<pipeline>:table:<table id>. A table that was created again at the same place has no such txn.
func TableAppID(pipeline, tableID string) string {
	return strings.Join([]string{scheme, escape(pipeline), "table", escape(tableID)}, ":")
}

// ReplayAppID is the key of the Delta txn that counts a table's replays of dead letters: kd1:<pipeline>:table:<table
// id>:replay. Its version is the seq of the entry in the operations log that announced the newest committed replay.
func ReplayAppID(pipeline, tableID string) string {
	return TableAppID(pipeline, tableID) + ":" + replay
}

// NewestAppID is the key of the Delta txn that holds the newest timestamp among the rows of p, in milliseconds: the end
// of the dedup window (see [Judge]). It is the appId of p with one part more. Only topics with an identity need it.
func (p Partition) NewestAppID(pipeline string) string { return p.AppID(pipeline) + ":" + newest }

// EpochAppID is the key of the Delta txn that holds the leader epoch of the last record batch before the position of p,
// -1 if it is unknown: the appId of p with one part more. The commit that sets the position also writes this txn. If a
// later commit sets the position without it, the epoch is not that of the position (see [EpochOf]).
func (p Partition) EpochAppID(pipeline string) string { return p.AppID(pipeline) + ":" + epoch }

// EpochOf returns the appId of the position that an appId of [Partition.EpochAppID] belongs to. ok is false for any
// other appId.
func EpochOf(appID string) (position string, ok bool) {
	position, ok = strings.CutSuffix(appID, ":"+epoch)
	return position, ok && strings.HasPrefix(position, scheme+":") && strings.Count(position, ":") == 5
}

// OriginsAppID is the key of the Delta txn for replays that produce the records of dead letters to their topic again,
// instead of adding rows. It holds the newest such replay of dead letters of p, and how many of the replayed records
// the table has accepted: see package reliability/origin. It is the appId of p with one part more. Only partitions with
// such a replay have it.
func (p Partition) OriginsAppID(pipeline string) string { return p.AppID(pipeline) + ":" + origins }

const (
	newest  = "newest"
	epoch   = "epoch"
	replay  = "replay"
	origins = "origins"
)

// OfPipeline reports whether an appId is one of a pipeline: of a position, a leader epoch, a newest timestamp or the
// accepted origins of a partition, or of the mark or the replays of a table.
func OfPipeline(appID, pipeline string) bool {
	return strings.HasPrefix(appID, scheme+":"+escape(pipeline)+":")
}

// AppID is a parsed appId of Sluice: of a partition, or of a table if TableID is set.
type AppID struct {
	Pipeline  string
	Partition Partition
	TableID   string
}

var (
	// ErrForeign means that another program uses the appId.
	ErrForeign = errors.New("not an appId of this scheme")
	// ErrNewest means that the appId holds a timestamp and not a position: see [Partition.NewestAppID].
	ErrNewest = errors.New("an appId of a partition's newest timestamp")
	// ErrEpoch means that the appId holds a leader epoch and not a position: see [Partition.EpochAppID].
	ErrEpoch = errors.New("an appId of a position's leader epoch")
	// ErrOrigins means that the appId holds accepted origins and not a position: see [Partition.OriginsAppID].
	ErrOrigins = errors.New("an appId of a partition's accepted origins")
	// ErrReplay means that the appId holds the newest replay of a table and not a position: see [ReplayAppID].
	ErrReplay = errors.New("an appId of a table's replays")
)

// ParseAppID parses the appId of a position or of a table. The error is [ErrForeign] for an appId of another program,
// [ErrNewest] for one that holds a timestamp, [ErrEpoch] for one that holds a leader epoch, [ErrOrigins] for one that
// counts accepted origins, [ErrReplay] for one that counts replays, and another error for a damaged appId of Sluice.
func ParseAppID(s string) (AppID, error) {
	parts := strings.Split(s, ":")
	if parts[0] != scheme {
		return AppID{}, ErrForeign
	}
	text := make([]string, len(parts))
	for i, p := range parts {
		t, err := unescape(p)
		if err != nil {
			return AppID{}, fmt.Errorf("appId %q: %w", s, err)
		}
		text[i] = t
	}
	switch {
	case len(parts) == 7 && parts[6] == newest:
		return AppID{}, ErrNewest
	case len(parts) == 7 && parts[6] == epoch:
		return AppID{}, ErrEpoch
	case len(parts) == 7 && parts[6] == origins:
		return AppID{}, ErrOrigins
	case len(parts) == 5 && parts[2] == "table" && parts[4] == replay:
		return AppID{}, ErrReplay
	case len(parts) == 4 && parts[2] == "table":
		return AppID{Pipeline: text[1], TableID: text[3]}, nil
	case len(parts) == 6:
		id, err := ParseTopicID(parts[4])
		if err != nil {
			return AppID{}, fmt.Errorf("appId %q: %w", s, err)
		}
		n, err := strconv.ParseInt(parts[5], 10, 32)
		if err != nil || n < 0 {
			return AppID{}, fmt.Errorf("appId %q: %q is no partition", s, parts[5])
		}
		return AppID{Pipeline: text[1], Partition: Partition{Cluster: text[2], Topic: text[3], TopicID: id, ID: int32(n)}}, nil
	}
	return AppID{}, fmt.Errorf("appId %q has %d parts", s, len(parts))
}

func escape(s string) string {
	if s == "" {
		return "-"
	}
	if s == "-" { // must not be mistaken for the unknown topic id
		return "%2D"
	}
	return url.QueryEscape(s)
}

func unescape(s string) (string, error) {
	if s == "-" {
		return "", nil
	}
	return url.QueryUnescape(s)
}
