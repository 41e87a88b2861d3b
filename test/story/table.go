package story

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/pulse"
)

// Source is the record from which a row was made.
type Source struct {
	Topic   string
	TopicID byte
	ID      int32
	Offset  int64
	// Epoch is the leader epoch of the record: another record may have had this offset before.
	Epoch int32
}

// Version is one version of a table.
type Version struct {
	Table  string
	Member string
	At     time.Time
	Commit connector.Commit
	Rows   []Source
	// Expired are the appIds of the txns that a checkpoint of this version leaves out.
	Expired []string
}

// TableLog is a table in memory: its log, with put-if-absent of the next version.
type TableLog struct {
	mu       sync.Mutex
	id       string
	altered  int // number of earlier schemas
	searches int // number of calls of HasRows
	versions []Version
	// epochless removes the leader epochs of positions from every commit: old versions of this program wrote none.
	epochless bool
}

// NewTableLog returns a table with this id. Its version 0 has neither rows nor txns.
func NewTableLog(id string) *TableLog { return &TableLog{id: id, versions: []Version{{Table: id}}} }

// Versions returns all versions so far.
func (l *TableLog) Versions() []Version {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Version(nil), l.versions...)
}

// Append adds a version of another writer, for instance an operator's command.
func (l *TableLog) Append(v Version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.Table = l.id
	l.versions = append(l.versions, v)
}

// Replace gives the table another id in a new version. Its txns stay, as with REPLACE TABLE.
func (l *TableLog) Replace(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id = id
	l.versions = append(l.versions, Version{Table: id})
}

// Expire drops the txns of a partition: its position, leader epoch and newest timestamp. Another writer's checkpoint
// does this once they are old.
func (l *TableLog) Expire(p connector.Partition) {
	l.Append(Version{Member: "checkpoint", Expired: []string{p.AppID(Pipeline), p.EpochAppID(Pipeline), p.NewestAppID(Pipeline)}})
}

// ForgetEpochs removes the leader epochs of positions from every later commit.
func (l *TableLog) ForgetEpochs() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epochless = true
}

// Alter gives the table another schema. Rows decoded for the earlier schema do not fit. See [Was] and [Becomes].
func (l *TableLog) Alter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.altered++
	l.versions = append(l.versions, Version{Table: l.id, Member: "ALTER"})
}

func (l *TableLog) searched() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.searches++
}

// Searches returns how often members have searched the table for rows of topics.
func (l *TableLog) Searches() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.searches
}

// put appends version n if the log does not have it and has the version before it. It reports whether it did.
func (l *TableLog) put(n int, v Version) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n != len(l.versions) {
		return false
	}
	v.Table, v.At = l.id, time.Now()
	if l.epochless {
		v.Commit.Txns = slices.DeleteFunc(slices.Clone(v.Commit.Txns), func(t connector.Txn) bool {
			_, beside := idempotency.EpochOf(t.AppID)
			return beside
		})
	}
	l.versions = append(l.versions, v)
	return true
}

func (l *TableLog) snapshot() *connector.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &connector.Snapshot{TableID: l.id, Version: int64(len(l.versions) - 1), Positions: map[string]int64{}, Schema: schema{l.altered}, ReadAt: time.Now()}
	for _, v := range l.versions {
		for _, t := range v.Commit.Txns { // a commit that sets a position also drops the epoch of the position before
			maps.DeleteFunc(s.Positions, func(appID string, _ int64) bool {
				position, beside := idempotency.EpochOf(appID)
				return beside && position == t.AppID
			})
		}
		for _, t := range v.Commit.Txns {
			s.Positions[t.AppID] = t.Version
		}
		for _, appID := range v.Expired {
			delete(s.Positions, appID)
		}
	}
	return s
}

type schema struct{ altered int }

func (s schema) Fits(built connector.Schema) error {
	if s != built {
		return errors.New("built for another schema")
	}
	return nil
}

// Table is a member's client of a TableLog.
type Table struct {
	Log    *TableLog
	Member string
	Chance *Chance
	// Broken is called before each step. If it returns an error, the step fails with this error. May be nil.
	Broken func(step string) error
	// Twins knows the identities of the rows; nil if they have none.
	Twins *Twins
	// Together is called with all rows that are encoded together, and may panic. May be nil.
	Together func([]Source)
	// Odd is called with each row that is encoded, and may panic. May be nil.
	Odd func(Source)
	// Late has the goroutines of PUTs whose sender no longer waits; nil if such PUTs never take effect.
	Late *sync.WaitGroup
	// Hangs is called within each step. The step does not end before Hangs returns. May be nil.
	Hangs func(ctx context.Context, step string)

	mu   sync.Mutex
	dead bool
	// Trace is called with a line for each event that is visible outside of the process. May be nil.
	Trace func(format string, args ...any)
}

var _ connector.Table = (*Table)(nil)

// Kill makes every later step fail, as after a crash of the process.
func (t *Table) Kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
}

func (t *Table) step(ctx context.Context, name string) error {
	// In the other steps the writer itself marks its loop as waiting.
	if name == "stage" || name == "put data files" || strings.HasPrefix(name, "recall") {
		loop := pulse.Of(ctx)
		loop.Wait()
		defer loop.Done()
	}
	if err := t.Chance.Pause(ctx, 200*time.Millisecond); err != nil {
		return classify.Mark(err, classify.Canceled)
	}
	if t.Hangs != nil {
		t.Hangs(ctx, name)
	}
	t.mu.Lock()
	dead := t.dead
	t.mu.Unlock()
	if dead {
		return errDead
	}
	if t.Broken != nil {
		return t.Broken(name)
	}
	return nil
}

// Load returns the newest snapshot.
func (t *Table) Load(ctx context.Context) (*connector.Snapshot, error) {
	if err := t.step(ctx, "load"); err != nil {
		return nil, err
	}
	s := t.Log.snapshot()
	t.trace("load version %d", s.Version)
	return s, nil
}

func (t *Table) trace(format string, args ...any) {
	if t.Trace != nil {
		t.Trace(format, args...)
	}
}

// Stage implements [connector.Table]: it keeps the sources of the rows of pieces instead of data files.
func (t *Table) Stage(ctx context.Context, _ *connector.Snapshot, _ string, pieces []connector.Piece, progress func(done int, encoded int64)) (*connector.Staged, error) {
	if err := t.step(ctx, "stage"); err != nil {
		return nil, err
	}
	t.together(pieces)
	var rows []Source
	for i, p := range pieces {
		rows = append(rows, t.encode(p)...)
		progress(i+1, int64(len(rows)))
	}
	if err := t.step(ctx, "put data files"); err != nil {
		return nil, err
	}
	progress(len(pieces), 0)
	t.trace("put data files: %d rows in %d pieces", len(rows), len(pieces))
	return &connector.Staged{Files: rows, Rows: int64(len(rows))}, nil
}

// Rehearse implements [connector.Table]: it calls Together and Odd with the rows of pieces and keeps nothing.
func (t *Table) Rehearse(ctx context.Context, _ *connector.Snapshot, pieces []connector.Piece) error {
	if err := t.step(ctx, "rehearse"); err != nil {
		return err
	}
	t.together(pieces)
	n := 0
	for _, p := range pieces {
		n += len(t.encode(p))
	}
	t.trace("rehearse %d rows", n)
	return nil
}

// together calls Together with the sources of all rows of pieces.
func (t *Table) together(pieces []connector.Piece) {
	if t.Together == nil {
		return
	}
	var all []Source
	for _, p := range pieces {
		all = append(all, sources(p)...)
	}
	t.Together(all)
}

// encode calls Odd with the source of each row of p, and returns the sources.
func (t *Table) encode(p connector.Piece) []Source {
	rows := sources(p)
	if t.Odd != nil {
		for _, row := range rows {
			t.Odd(row)
		}
	}
	return rows
}

// OffsetOf implements [connector.Table].
func (t *Table) OffsetOf(rows arrow.RecordBatch, row int64) (int64, bool) {
	return rows.Column(3).(*array.Int64).Value(int(row)), true
}

// HasRows implements [connector.Table]: it searches the versions of the snapshot's table up to the snapshot.
func (t *Table) HasRows(_ context.Context, s *connector.Snapshot, of []connector.RowsOf, _ bool) (map[connector.RowsOf]bool, error) {
	t.Log.searched()
	found := map[connector.RowsOf]bool{}
	for i, v := range t.Log.Versions() {
		for _, row := range v.Rows {
			for _, of := range of {
				here := row.Topic == of.Topic && (of.Partition == connector.AnyPartition || row.ID == of.Partition)
				if here && int64(i) <= s.Version && v.Table == s.TableID {
					found[of] = true
				}
			}
		}
	}
	return found, nil
}

// Commit implements [connector.Table]: it checks the precondition on the newest version and puts the next one if it is
// absent, until that succeeds. The PUT may take effect late or get no response.
func (t *Table) Commit(ctx context.Context, c *connector.Commit, pre func(*connector.Snapshot) error) (*connector.Snapshot, error) {
	v := Version{Member: t.Member, Commit: *c}
	if c.Staged != nil {
		v.Rows = c.Staged.Files.([]Source)
	}
	for {
		if err := t.step(ctx, "refresh"); err != nil {
			return nil, err
		}
		s := t.Log.snapshot()
		if err := pre(s); err != nil {
			return nil, err
		}
		if err := t.step(ctx, "put"); err != nil {
			t.stray(int(s.Version)+1, v)
			return nil, fmt.Errorf("%w: %w", connector.ErrUndecided, err)
		}
		if t.Log.put(int(s.Version)+1, v) {
			t.trace("put version %d if absent: %s%s", s.Version+1, c.Operation, covered(c))
			if err := t.step(ctx, "answer"); err != nil {
				return nil, fmt.Errorf("%w: %w", connector.ErrUndecided, err)
			}
			return t.Log.snapshot(), nil
		}
	}
}

func covered(c *connector.Commit) string {
	var b strings.Builder
	for _, r := range c.Ranges {
		fmt.Fprintf(&b, " %s:%d [%d,%d) %d rows", r.Topic, r.Partition, r.From, r.Next, r.Rows)
		if r.Letters > 0 {
			fmt.Fprintf(&b, " %d letters", r.Letters)
		}
		if r.Duplicates > 0 {
			fmt.Fprintf(&b, " %d duplicates", r.Duplicates)
		}
	}
	return b.String()
}

// stray lets a PUT take effect later, or never, after its sender died or stopped waiting.
func (t *Table) stray(n int, v Version) {
	if t.Late == nil || t.Chance.Is(2) {
		return
	}
	t.Late.Go(func() {
		_ = t.Chance.Pause(context.WithoutCancel(context.Background()), 3*time.Second)
		t.Log.put(n, v)
	})
}

// Discard implements [connector.Table]: without data files it has nothing to delete.
func (t *Table) Discard(context.Context, *connector.Staged) {}

// Decoder makes a row of the coordinates and the leader epoch of a record. Bad records fail as their [Kind] says.
type Decoder struct {
	Identity bool // whether records have a header with an identity
}

// Builder implements [connector.Decoder].
func (d Decoder) Builder(s connector.Schema) (connector.Builder, error) {
	return &builder{altered: s.(schema).altered > 0, identity: d.Identity}, nil
}

type builder struct {
	from   []connector.Partition
	at     []int64
	epochs []int32

	identity             bool
	entries, sealedEntry []idempotency.Entry

	sealed  int64
	altered bool
	open    bool // set from the first record of a chunk on: the builder has buffers
}

var rowSchema = arrow.NewSchema([]arrow.Field{
	{Name: "topic", Type: arrow.BinaryTypes.String},
	{Name: "topic_id", Type: arrow.PrimitiveTypes.Int32},
	{Name: "partition", Type: arrow.PrimitiveTypes.Int32},
	{Name: "offset", Type: arrow.PrimitiveTypes.Int64},
	{Name: "epoch", Type: arrow.PrimitiveTypes.Int32},
}, nil)

// Add implements [connector.Builder].
func (b *builder) Add(p connector.Partition, r *connector.Record) error {
	b.open = true
	if len(r.Value) > 0 {
		switch k := Kind(r.Value[0]); {
		case k == Breaks && r.Offset%2 == 0:
			panic("the decoder breaks on " + string(r.Value))
		case k == Breaks:
			b.at = nil // the caller must not rely on the rows of a builder that failed
			return errors.New("unknown cause")
		case k == Poison, k == Was && b.altered, k == Becomes && !b.altered:
			return errPoison
		}
	}
	if len(b.at) == 5 { // few rows, so that chunks end at many different places
		return connector.ErrChunkFull
	}
	b.from, b.at, b.epochs = append(b.from, p), append(b.at, r.Offset), append(b.epochs, epochOf(r.Value))
	if b.identity {
		s := Stamp{At: r.Timestamp}
		if n := len(r.Headers); n > 0 {
			s.ID = string(r.Headers[n-1].Value)
		}
		b.entries = append(b.entries, s.entry(r.Offset))
	}
	return nil
}

// Entries implements [connector.IdentityBuilder].
func (b *builder) Entries() []idempotency.Entry { return b.sealedEntry }

func (b *builder) Rows() int                  { return len(b.at) }
func (b *builder) Bytes() int64               { return int64(len(b.at) * 32) }
func (b *builder) Ignored() connector.Ignored { return connector.Ignored{} }

// Allocated implements [connector.Builder]: it counts 1000 bytes of buffers besides the rows, also before the first
// row.
func (b *builder) Allocated() int64 {
	if !b.open {
		return 0
	}
	return int64(cap(b.at)*32) + 1000
}

func (b *builder) Sealed() int64 { return b.sealed }

// Seal implements [connector.Builder].
func (b *builder) Seal() arrow.RecordBatch {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, rowSchema)
	defer rb.Release()
	for i, p := range b.from {
		rb.Field(0).(*array.StringBuilder).Append(p.Topic)
		rb.Field(1).(*array.Int32Builder).Append(int32(p.TopicID[15]))
		rb.Field(2).(*array.Int32Builder).Append(p.ID)
		rb.Field(3).(*array.Int64Builder).Append(b.at[i])
		rb.Field(4).(*array.Int32Builder).Append(b.epochs[i])
	}
	*b = builder{sealed: b.Bytes(), altered: b.altered, identity: b.identity, sealedEntry: b.entries}
	return rb.NewRecordBatch()
}

func sources(p connector.Piece) []Source {
	var all []Source
	for i := p.From; i < p.To; i++ {
		at := int(i)
		all = append(all, Source{
			p.Rows.Column(0).(*array.String).Value(at), byte(p.Rows.Column(1).(*array.Int32).Value(at)),
			p.Rows.Column(2).(*array.Int32).Value(at), p.Rows.Column(3).(*array.Int64).Value(at), p.Rows.Column(4).(*array.Int32).Value(at),
		})
	}
	return all
}

// positions returns the newest txn of each appId in all versions, even if that txn has expired.
func positions(versions []Version) map[string]int64 {
	at := map[string]int64{}
	for _, v := range versions {
		for _, t := range v.Commit.Txns {
			at[t.AppID] = t.Version
		}
	}
	return maps.Clone(at)
}
