package deltalog

import "encoding/json"

// Action is one line of a commit or one row of a checkpoint: [CommitInfo], [Protocol], [Metadata], [Txn], [Add] or
// [Remove]. Actions of other kinds are skipped.
type Action interface{ kind() Kinds }

// Kinds is a set of kinds of actions.
type Kinds uint8

// The kinds of actions, in their order within a commit.
const (
	KindCommitInfo Kinds = 1 << iota
	KindProtocol
	KindMetadata
	KindTxn
	KindAdd
	KindRemove

	// Heads are the actions that describe a table without its data files.
	Heads = KindProtocol | KindMetadata | KindTxn
	// All is every kind.
	All = Heads | KindCommitInfo | KindAdd | KindRemove
)

// CommitInfo describes who wrote a commit and why. The protocol leaves its content open; this struct has the fields
// that Spark, Trino and delta-rs show.
type CommitInfo struct {
	Timestamp           int64             `json:"timestamp"` // milliseconds since 1970
	Operation           string            `json:"operation"`
	OperationParameters map[string]string `json:"operationParameters"`
	ReadVersion         *int64            `json:"readVersion,omitempty"`
	IsolationLevel      string            `json:"isolationLevel,omitempty"`
	IsBlindAppend       bool              `json:"isBlindAppend"`
	OperationMetrics    map[string]string `json:"operationMetrics,omitempty"`
	EngineInfo          string            `json:"engineInfo,omitempty"`
	// TxnID is unique to one commit at one version: a writer recognizes its own commit by it.
	TxnID string `json:"txnId,omitempty"`
	// Sluice is the part that only this program writes and reads.
	Sluice json.RawMessage `json:"sluice,omitempty"`
}

// Protocol lists what a reader and a writer of the table must support. ReaderFeatures is nil below reader version 3,
// and WriterFeatures is nil below writer version 7.
type Protocol struct {
	MinReaderVersion int32    `json:"minReaderVersion"`
	MinWriterVersion int32    `json:"minWriterVersion"`
	ReaderFeatures   []string `json:"readerFeatures,omitempty"`
	WriterFeatures   []string `json:"writerFeatures,omitempty"`
}

// Metadata is the identity, schema and configuration of the table. A new one replaces the old one completely.
type Metadata struct {
	ID               string            `json:"id"`
	Name             string            `json:"name,omitempty"`
	Description      string            `json:"description,omitempty"`
	Format           Format            `json:"format"`
	SchemaString     string            `json:"schemaString"`
	PartitionColumns []string          `json:"partitionColumns"`
	Configuration    map[string]string `json:"configuration"`
	CreatedTime      *int64            `json:"createdTime,omitempty"` // milliseconds since 1970
}

// Format names the encoding of the data files.
type Format struct {
	Provider string            `json:"provider"`
	Options  map[string]string `json:"options"`
}

// Txn is the progress of an application. The application defines the meaning of Version.
type Txn struct {
	AppID   string `json:"appId"`
	Version int64  `json:"version"`
	// LastUpdated is in milliseconds since 1970, nil if the writer omitted it.
	LastUpdated *int64 `json:"lastUpdated,omitempty"`
}

// Add adds a data file to the table.
type Add struct {
	// Path is a URI, relative to the table; see [Key].
	Path             string             `json:"path"`
	PartitionValues  map[string]*string `json:"partitionValues"`
	Size             int64              `json:"size"`
	ModificationTime int64              `json:"modificationTime"` // milliseconds since 1970
	DataChange       bool               `json:"dataChange"`
	Stats            string             `json:"stats,omitempty"` // statistics as JSON
	Tags             map[string]*string `json:"tags,omitempty"`
	// DeletionVector is nil in every table that this package can write.
	DeletionVector json.RawMessage `json:"deletionVector,omitempty"`
}

// Remove removes a data file from the table. The action stays in the log as a tombstone until vacuum may have deleted
// the file.
type Remove struct {
	Path                 string             `json:"path"`
	DeletionTimestamp    int64              `json:"deletionTimestamp,omitempty"` // milliseconds since 1970
	DataChange           bool               `json:"dataChange"`
	ExtendedFileMetadata bool               `json:"extendedFileMetadata,omitempty"`
	PartitionValues      map[string]*string `json:"partitionValues,omitempty"`
	Size                 *int64             `json:"size,omitempty"`
}

func (CommitInfo) kind() Kinds { return KindCommitInfo }
func (Protocol) kind() Kinds   { return KindProtocol }
func (Metadata) kind() Kinds   { return KindMetadata }
func (Txn) kind() Kinds        { return KindTxn }
func (Add) kind() Kinds        { return KindAdd }
func (Remove) kind() Kinds     { return KindRemove }
