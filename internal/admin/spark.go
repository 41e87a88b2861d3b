package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/open"
	"sluice/sink/delta/objstore"
)

// checkpoint is a checkpoint of Spark Structured Streaming. Its files are text (HDFSMetadataLog, OffsetSeqLog and
// CommitLog in org.apache.spark.sql.execution.streaming):
//
//	metadata         {"id":"<the query's id>"}
//	offsets/<batch>  "v1", a line of settings, and one line for each source with the end offsets of the batch;
//	                 for Kafka {"<topic>":{"<partition>":<next offset>}}
//	commits/<batch>  exists once the batch is done
type checkpoint struct {
	query   string
	offsets []int64 // the numbers of the batches with an offsets file, ascending
	commits []int64
	folder  folder
}

// folder reads the files of a checkpoint.
type folder interface {
	list(ctx context.Context, dir string) (names []string, err error)
	read(ctx context.Context, name string) (io.ReadCloser, error)
}

// largestOffsets bounds a file of a checkpoint, in bytes.
const largestOffsets = 64 << 20

// fromSpark returns the end offsets of the last Spark batch that is in the table. Delta's sink commits the rows
// together with a txn of the query's id and the batch's number (DeltaSink.addBatch), so the table has the exact batch.
// A query that writes with foreachBatch may have no such txn: then the newest batch in the checkpoint's folder commits
// counts as the last.
func (f *AdoptRequest) fromSpark(ctx context.Context, l *inspection) (*adoptedPositions, error) {
	folder, end, err := openFolder(ctx, l.table.config, f.Checkpoint)
	if err != nil {
		return nil, err
	}
	defer end()
	c, err := readCheckpoint(ctx, folder)
	if err != nil {
		return nil, fail.Found(fmt.Errorf("checkpoint %s: %w", f.Checkpoint, err))
	}
	appID := f.AppID
	if appID == "" {
		appID = c.query
	}
	a := &adoptedPositions{}
	batch, inTable := l.snapshot.Positions[appID]
	a.from = map[string]int64{appID: -1}
	if inTable {
		a.from[appID] = batch
	}
	if err := c.judge(a, appID, &batch, inTable); err != nil {
		return nil, err
	}
	if a.next, err = c.ends(ctx, batch, l.topic.Name); err != nil {
		return nil, fail.Found(fmt.Errorf("checkpoint %s: %w", f.Checkpoint, err))
	}
	a.what = fmt.Sprintf("the end of Spark's batch %d", batch)
	if last := c.last(c.offsets); !inTable && last > batch {
		later, err := c.ends(ctx, last, l.topic.Name)
		if err != nil {
			return nil, fail.Found(fmt.Errorf("checkpoint %s: %w", f.Checkpoint, err))
		}
		a.note("batch %d was begun and is not in commits, and the table has no txn of query %s that says whether it is in the table: if it is, at most %d records repeat",
			last, appID, between(a.next, later))
	}
	return a, nil
}

// judge corrects batch to the last batch that is in the table, and notes where table and checkpoint differ. It refuses
// if the checkpoint does not have the batch's offsets. inTable says that batch comes from the table.
func (c *checkpoint) judge(a *adoptedPositions, appID string, batch *int64, inTable bool) error {
	last, done := c.last(c.offsets), c.last(c.commits)
	switch {
	case !inTable && done < 0:
		return refused("no batch of the checkpoint is done, and the table has no txn of query %s: there is nothing to adopt, offsets start begins the topic", appID)
	case !inTable:
		*batch = done
		a.note("the table has no txn of query %s: that batch %d and all before it are in the table is what the checkpoint says", appID, done)
	case *batch > last:
		return refused("the table has batch %d of query %s, the checkpoint ends with batch %d: it is an older copy, or another query's", *batch, appID, last)
	case *batch > done:
		a.note("batch %d is not in commits, and the table has it: it counts", *batch)
	case *batch < done:
		a.note("the checkpoint says that batch %d is done, and the table has batch %d of query %s as its last one: the table counts. "+
			"If it was set back to an older version, what is missing is read again; if the batches between had no rows, nothing repeats", done, *batch, appID)
	}
	if !slices.Contains(c.offsets, *batch) {
		return refused("batch %d is the last one in the table, and the checkpoint does not have its offsets any more", *batch)
	}
	return nil
}

func (*checkpoint) last(batches []int64) int64 {
	if len(batches) == 0 {
		return -1
	}
	return batches[len(batches)-1]
}

// between returns the number of offsets between two sets of positions, over all partitions.
func between(from, to map[int32]int64) (n int64) {
	for id, end := range to {
		n += max(0, end-from[id])
	}
	return n
}

// openFolder opens the folder of a checkpoint: a directory, or a URL that the settings of storage.s3 can open.
func openFolder(ctx context.Context, cfg *config.Config, name string) (folder, func(), error) {
	at := *cfg
	at.Storage.URL = name
	if rest, hadoop := strings.CutPrefix(name, "s3a://"); hadoop {
		at.Storage.URL = "s3://" + rest
	}
	if dir, local := strings.CutPrefix(name, "file://"); local || !strings.Contains(name, "://") {
		root, err := os.OpenRoot(filepath.FromSlash(dir))
		if err != nil {
			return nil, nil, fail.Usage(fmt.Errorf("--checkpoint: %w", err))
		}
		return directory{root}, func() { _ = root.Close() }, nil // read only
	}
	store, err := open.Store(ctx, &at)
	if err != nil {
		return nil, nil, fail.Usage(fmt.Errorf("--checkpoint: %w", err))
	}
	end := func() {}
	if c, ok := store.(io.Closer); ok {
		end = func() { _ = c.Close() } // read only
	}
	return remote{store}, end, nil
}

// directory is a local folder.
type directory struct{ root *os.Root }

func (d directory) list(_ context.Context, dir string) (names []string, err error) {
	entries, err := fs.ReadDir(d.root.FS(), dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return names, err
}

func (d directory) read(_ context.Context, name string) (io.ReadCloser, error) {
	return d.root.Open(name)
}

// remote is a folder of an object store.
type remote struct{ store objstore.Store }

func (r remote) list(ctx context.Context, dir string) (names []string, err error) {
	for o, err := range r.store.List(ctx, dir+"/", "") {
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimPrefix(o.Key, dir+"/"))
	}
	return names, nil
}

func (r remote) read(ctx context.Context, name string) (io.ReadCloser, error) {
	return r.store.Get(ctx, name, 0, -1)
}

func readCheckpoint(ctx context.Context, from folder) (*checkpoint, error) {
	c := &checkpoint{folder: from}
	text, err := c.text(ctx, "metadata")
	if err != nil {
		return nil, fmt.Errorf("there is no checkpoint: %w", err)
	}
	var metadata struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(text, &metadata); err != nil || metadata.ID == "" {
		return nil, errors.New("its file metadata does not have the id of a query")
	}
	c.query = metadata.ID
	if c.offsets, err = c.batches(ctx, "offsets"); err != nil {
		return nil, err
	}
	if c.commits, err = c.batches(ctx, "commits"); err != nil {
		return nil, err
	}
	if len(c.offsets) == 0 {
		return nil, errors.New("its folder offsets is empty")
	}
	return c, nil
}

// batches returns the numbers of the batches that have a file in a folder. It ignores other files, such as Hadoop's
// checksums.
func (c *checkpoint) batches(ctx context.Context, dir string) (all []int64, err error) {
	names, err := c.folder.list(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range names {
		if n, err := strconv.ParseInt(name, 10, 64); err == nil && n >= 0 && strconv.FormatInt(n, 10) == name {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// ends returns the next offset of each partition of a topic after a batch.
func (c *checkpoint) ends(ctx context.Context, batch int64, topic string) (map[int32]int64, error) {
	name := fmt.Sprintf("offsets/%d", batch)
	text, err := c.text(ctx, name)
	if err != nil {
		return nil, err
	}
	ends, topics, err := parseOffsetSeq(text, topic)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if ends == nil {
		return nil, fmt.Errorf("%s: no source reads topic %s, they read %s", name, topic, strings.Join(topics, ", "))
	}
	return ends, nil
}

// parseOffsetSeq parses the offsets file of a batch. It returns the next offsets of a topic, nil if no source reads it,
// and the topics that the sources read.
func parseOffsetSeq(text []byte, topic string) (ends map[int32]int64, topics []string, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, largestOffsets)
	for n := 0; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case n == 0 && line != "v1":
			return nil, nil, fmt.Errorf("its format is %.10q, known is v1", line)
		case n < 2 || line == "-" || line == "": // settings, or a source without an offset
			continue
		}
		var source map[string]map[string]int64
		if json.Unmarshal([]byte(line), &source) != nil {
			continue // a source that is not Kafka
		}
		topics = append(topics, slices.Sorted(maps.Keys(source))...)
		of, ok := source[topic]
		if !ok {
			continue
		}
		if ends != nil {
			return nil, nil, fmt.Errorf("two sources read topic %s: which one fills the table is not known", topic)
		}
		ends = make(map[int32]int64, len(of))
		for number, next := range of {
			id, err := strconv.ParseInt(number, 10, 32)
			if err != nil || id < 0 || next < 0 {
				return nil, nil, fmt.Errorf("partition %.20q of topic %s has offset %d", number, topic, next)
			}
			ends[int32(id)] = next
		}
	}
	return ends, topics, lines.Err()
}

func (c *checkpoint) text(ctx context.Context, name string) ([]byte, error) {
	body, err := c.folder.read(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer func() { _ = body.Close() }() // read only
	text, err := io.ReadAll(io.LimitReader(body, largestOffsets))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}
