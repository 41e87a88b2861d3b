//go:build lab

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"sluice/reliability/origin"
	"sluice/test/gen"
	"sluice/test/lab"
)

const (
	// smallBatches is the largest record batch of the topic in TestReplayTopic_Killed, in bytes. It splits the records that
	// a replay produces to one partition, so that the replay can be killed between them.
	smallBatches = 64 << 10
	// echoShare is the share, of 100, of the records of replays that are produced once more as soon as they are in the topic.
	echoShare = 10
	// repeatedOrigins is how many records of each partition are produced once more at the end.
	repeatedOrigins = 25
)

// originResults are the results of records with an origin, as two metrics of members count them.
type originResults struct{ accepted, repeated, missing, unknown, refusedUnknown, forged int }

// origins returns the sums of the metrics of origins over members.
func (s *scene) origins(members ...*member) (all originResults) {
	s.t.Helper()
	of := map[string]map[string]*int{
		"sluice_origins_total": {
			"accepted": &all.accepted, "repeated": &all.repeated, "missing": &all.missing, "unknown": &all.unknown,
		},
		"sluice_origins_refused_total": {"unknown": &all.refusedUnknown, "forged": &all.forged},
	}
	for _, m := range members {
		resp, err := m.get("/metrics")
		if err != nil {
			s.t.Fatal(err)
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			series, value, _ := strings.Cut(lines.Text(), "} ")
			name, labels, _ := strings.Cut(series, "{")
			for result, sum := range of[name] {
				if !strings.Contains(labels, `result="`+result+`"`) {
					continue
				}
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					s.t.Fatalf("%s of %s: %v", name, m.Name, err)
				}
				*sum += int(n)
			}
		}
		_ = resp.Body.Close() // the body has been read, so an error of Close means nothing
	}
	return all
}

// killedAtProduce starts a replay through the topic, and kills it when the broker has sent its n-th response to a request
// to produce. The replay does not receive that response.
func (s *scene) killedAtProduce(n int, args []string, change ...setting) {
	s.t.Helper()
	proxy, err := lab.StartKafkaProxy()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = proxy.Close() })
	proxy.Connect(s.addrs[0])
	const produce, metadata = 0, 3 // the keys of requests
	reached, killed, seen := make(chan struct{}), make(chan struct{}), 0
	end := sync.OnceFunc(func() { close(killed) })
	s.t.Cleanup(end) // otherwise the proxy would wait in its Close
	from, to := addressIn(s.t, s.addrs[0]), addressIn(s.t, proxy.Addr)
	proxy.Tell(func(key, _ int16, frame []byte) []byte {
		switch key {
		case metadata:
			return bytes.ReplaceAll(frame, from, to) // so that the replay produces through the proxy, too
		case produce:
			if seen++; seen == n {
				close(reached)
				<-killed
			}
		}
		return nil
	})
	p := s.replays(args, append(change, func(c *settings) { c.brokers = proxy.Addr })...)
	s.await(p.Name+" has produced", func() (bool, error) {
		select {
		case <-reached:
			return true, nil
		case <-p.Done():
			return false, fmt.Errorf("%s has ended before response %d: %s", p.Name, n, p.Tail())
		default:
			return false, nil
		}
	})
	if err := p.Kill(); err != nil {
		s.t.Fatal(err)
	}
	end()
	s.t.Logf("killed %s at response %d to a request to produce", p.Name, n)
}

// addressIn returns the bytes of an address in the metadata of Kafka: the host, and the port in four bytes.
func addressIn(t *testing.T, addr string) []byte {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.AppendUint32([]byte(host), uint32(n))
}

// killedAfter starts a slow replay through the topic, and kills it once members have accepted n more records.
func (s *scene) killedAfter(n int, members []*member, args []string, change ...setting) {
	s.t.Helper()
	before := s.origins(members...).accepted
	p := s.replays(args, change...)
	s.await(fmt.Sprintf("members have accepted %d records of %s", n, p.Name), func() (bool, error) {
		if !p.Running() {
			return false, fmt.Errorf("%s has ended: %s", p.Name, p.Tail())
		}
		return s.origins(members...).accepted >= before+n, nil
	})
	if err := p.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("killed %s after members had accepted %d of its records, %d in all", p.Name, s.origins(members...).accepted-before, s.origins(members...).accepted)
}

// originOf returns the header with the origin of a record, nil if it has none.
func originOf(r *kgo.Record) []byte {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == origin.Header {
			return h.Value
		}
	}
	return nil
}

// again returns a record with the same partition, key and value, and with this origin.
func again(r *kgo.Record, header []byte) *kgo.Record {
	return &kgo.Record{
		Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: []kgo.RecordHeader{{Key: origin.Header, Value: header}},
	}
}

// echoes produces some of the records with an origin again as soon as it reads them, as a producer that repeats requests
// does. It does so until the caller calls end, which returns how many there were.
func (s *scene) echoes() (end func() int) {
	s.t.Helper()
	c := s.client(kgo.ProducerBatchMaxBytes(smallBatches/2), kgo.ConsumeTopics(s.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	random := rand.New(rand.NewPCG(s.orders.Seed, 1))
	ctx, cancel := context.WithCancel(s.ctx)
	var (
		group errgroup.Group
		count int
	)
	group.Go(func() error {
		for {
			fetched := c.PollFetches(ctx)
			select {
			case <-ctx.Done():
				return nil
			default:
			}
			if err := fetched.Err(); err != nil {
				return err
			}
			var repeats []*kgo.Record
			fetched.EachRecord(func(r *kgo.Record) {
				if header := originOf(r); header != nil && random.IntN(100) < echoShare {
					repeats = append(repeats, again(r, header))
				}
			})
			if err := c.ProduceSync(s.ctx, repeats...).FirstErr(); err != nil {
				return err
			}
			count += len(repeats)
		}
	})
	return func() int {
		s.t.Helper()
		cancel()
		if err := group.Wait(); err != nil {
			s.t.Fatalf("produce records again: %v", err)
		}
		return count
	}
}

// produceOrigins produces records with an origin that makes none of them a replay: to each partition repeats of records
// that are there, then records with a forged origin or an unknown one. The ledger gets the rows of the latter, which are
// ordinary records. It returns how many of each kind members must count.
func (s *scene) produceOrigins(keys origin.Keys, copies map[int32][]*kgo.Record) (want originResults) {
	s.t.Helper()
	c := s.client(kgo.ProducerBatchMaxBytes(smallBatches / 2))
	others, err := origin.ParseKeys([]byte(strings.Repeat("other", 8)))
	if err != nil {
		s.t.Fatal(err)
	}
	cases := []struct {
		count *int
		sign  func(genuine origin.Origin, of, r *kgo.Record) []byte
	}{
		{&want.forged, func(genuine origin.Origin, _, r *kgo.Record) []byte { return others.Sign(genuine, r.Key, r.Value) }},
		{&want.forged, func(_ origin.Origin, of, _ *kgo.Record) []byte { return originOf(of) }}, // that of another value
		{&want.forged, func(_ origin.Origin, of, _ *kgo.Record) []byte { return originOf(of)[:20] }},
		{&want.unknown, func(o origin.Origin, _, r *kgo.Record) []byte {
			o.Intent = origin.MaxIntent
			return keys.Sign(o, r.Key, r.Value)
		}},
		{&want.unknown, func(o origin.Origin, _, r *kgo.Record) []byte {
			o.TableID = "another"
			return keys.Sign(o, r.Key, r.Value)
		}},
		{&want.refusedUnknown, func(o origin.Origin, _, r *kgo.Record) []byte {
			o.Pipeline = "another"
			return keys.Sign(o, r.Key, r.Value)
		}},
		{&want.refusedUnknown, func(o origin.Origin, _, r *kgo.Record) []byte {
			o.Record.ID++
			return keys.Sign(o, r.Key, r.Value)
		}},
	}
	for _, partition := range slices.Sorted(maps.Keys(copies)) {
		some := func() *kgo.Record { return copies[partition][s.random.IntN(len(copies[partition]))] }
		for range repeatedOrigins {
			r := some()
			if err := c.ProduceSync(s.ctx, again(r, originOf(r))).FirstErr(); err != nil {
				s.t.Fatal(err)
			}
		}
		want.repeated += repeatedOrigins
		for _, i := range s.random.Perm(len(cases)) {
			rec := s.orders.Record(s.produced)
			s.produced++
			of := some()
			genuine, err := keys.Verify(originOf(of), of.Key, of.Value)
			if err != nil {
				s.t.Fatalf("%s:%d@%d: %v", of.Topic, of.Partition, of.Offset, err)
			}
			r := &kgo.Record{Topic: s.name, Partition: partition, Key: rec.Key, Value: rec.Value}
			r = again(r, cases[i].sign(genuine, of, r))
			if err := c.ProduceSync(s.ctx, r).FirstErr(); err != nil {
				s.t.Fatal(err)
			}
			*cases[i].count++
			rec.Time = r.Timestamp.UnixMilli()
			at := gen.Coordinates{Topic: s.name, Partition: partition, Offset: r.Offset}
			s.ledger.Add(gen.Entry{Coordinates: at, Hash: rec.Hash(at)})
		}
	}
	return want
}

// inTopic returns the records with an origin by partition, and writes a file of them for the oracle: of all copies of a
// dead letter, one must have a row. Each must be a dead letter of the scene, byte for byte. bad are these dead letters.
func (s *scene) inTopic(keys origin.Keys, bad map[gen.Coordinates]gen.Record) (copies map[int32][]*kgo.Record, path string) {
	s.t.Helper()
	copies = map[int32][]*kgo.Record{}
	lines, of := [][]string{{"topic", "partition", "offset", "hash", "of"}}, map[gen.Coordinates]bool{}
	s.eachIn(s.name, func(r *kgo.Record) {
		header := originOf(r)
		if header == nil {
			return
		}
		from, err := keys.Verify(header, r.Key, r.Value)
		if err != nil {
			s.t.Fatalf("%s:%d@%d: %v", r.Topic, r.Partition, r.Offset, err)
		}
		letter := gen.Coordinates{Topic: from.Record.Topic, Partition: from.Record.ID, Offset: from.Record.Offset}
		rec, known := bad[letter]
		if !known || !bytes.Equal(r.Key, rec.Key) || !bytes.Equal(r.Value, rec.Value) || r.Partition != letter.Partition {
			s.t.Errorf("%s:%d@%d is not the record of a dead letter, but has the origin %+v", r.Topic, r.Partition, r.Offset, from)
			return
		}
		of[letter] = true
		copies[r.Partition] = append(copies[r.Partition], r)
		rec.Time = r.Timestamp.UnixMilli()
		at := gen.Coordinates{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
		lines = append(lines, []string{
			r.Topic, strconv.Itoa(int(r.Partition)), strconv.FormatInt(r.Offset, 10), rec.Hash(at), fmt.Sprintf("%d@%d", letter.Partition, letter.Offset),
		})
	})
	s.t.Logf("the topic has %d records with an origin, of %d dead letters", len(lines)-1, len(of))
	if len(of) != len(bad) {
		s.t.Errorf("%d dead letters have a record with their origin, want %d", len(of), len(bad))
	}
	path = filepath.Join(s.dir, "copies.csv")
	file, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(csv.NewWriter(file).WriteAll(lines), file.Close()); err != nil {
		s.t.Fatal(err)
	}
	return copies, path
}

// correctables returns the n records of a producer of correctable ones by their coordinates.
func (s *scene) correctables(p *gen.Producer) map[gen.Coordinates]gen.Record {
	s.t.Helper()
	byHash := map[string]gen.Record{}
	for i := range p.Records {
		rec := p.Orders.Record(p.From + i)
		byHash[rec.Raw()] = rec
	}
	all := map[gen.Coordinates]gen.Record{}
	for at, hash := range s.lines(s.badLedger) {
		rec, known := byHash[hash]
		if !known {
			s.t.Fatalf("%v is none of the correctable records", at)
		}
		all[at] = rec
	}
	return all
}

// withKeys makes members and commands of the scene have keys of replays through the topic, and returns the keys.
func (s *scene) withKeys() origin.Keys {
	s.t.Helper()
	text := make([]byte, 0, 2*origin.MinKeyBytes+1)
	for range 2 * origin.MinKeyBytes {
		text = append(text, "0123456789abcdef"[s.random.IntN(16)])
	}
	s.keysFile = filepath.Join(s.dir, "keys")
	keys, err := origin.ParseKeys(text)
	if err := errors.Join(err, os.WriteFile(s.keysFile, text, 0o600)); err != nil {
		s.t.Fatal(err)
	}
	return keys
}

// killedOften starts replays through the topic and kills each at another step: while it produces, at PUTs whose outcomes
// differ, and while members accept its records. It returns the PUTs that must take effect later.
func (s *scene) killedOften(args []string, members []*member) (late []*lab.Fault) {
	s.t.Helper()
	s.killedAtProduce(4+s.random.IntN(20), args, withoutFlood)
	for _, outcome := range s.random.Perm(3)[:killsAtPut] {
		// The PUTs are those of an entry of the operations log, of a commit, and of an entry with its outcome: first to
		// withdraw the killed replay, then to open the next one. Some commits write a checkpoint, too.
		fault := s.killedAtPut(1+s.random.IntN(6), s.replayPut, args, withoutFlood)
		what := "never takes effect"
		switch outcome {
		case 0:
			fault.Release(false)
		case 1:
			fault.Release(true)
			what = "takes effect"
		default:
			late, what = append(late, fault), "takes effect later"
		}
		s.t.Logf("its PUT %s", what)
	}
	s.killedAfter(1+s.random.IntN(250), members, append(slices.Clone(args), "--rate", "10"), withoutFlood)
	if n := s.origins(members...).accepted; n == 0 || n >= replayedThroughTopic {
		s.t.Fatalf("members have accepted %d records of the killed replays, want some of %d", n, replayedThroughTopic)
	}
	return late
}

// TestReplayTopic_Killed replays dead letters through their topic beside live traffic. It kills the replay while it
// produces, while it writes to the store, and while members accept its records; then two replays end the work together.
// Some of the records are in the topic several times, and other programs produce records with made origins. The record of
// each dead letter must have exactly one row.
func TestReplayTopic_Killed(t *testing.T) {
	t.Parallel()
	s := newSceneAt(t, shared.kafka.Addr).strict()
	if err := shared.kafka.CreateTopic(s.ctx, s.name, 4, map[string]string{"max.message.bytes": strconv.Itoa(smallBatches)}); err != nil {
		t.Fatal(err)
	}
	keys := s.withKeys()
	refuses := s.start(refusing)
	correctable := s.correctable(replayedThroughTopic)
	correctable.Corrected = nil // the ledger cannot know the coordinates of their rows
	live := s.producer(1<<40, "zstd")
	live.PerSecond, live.Live = liveRate, true
	correctable.BatchBytes, live.BatchBytes = smallBatches/2, smallBatches/2
	if err := correctable.Run(s.ctx, s.ledger); err != nil {
		t.Fatal(err)
	}
	bad := s.correctables(&correctable)
	s.awaitPassed()
	refuses.drain()

	members := []*member{s.start(withoutFlood), s.start(withoutFlood)}
	end := s.runs(live)
	for _, m := range members {
		m.await("it has partitions", func(r report) bool { return r.Ready && len(r.Partitions) > 0 })
	}
	watch := s.watchFreshness(members...)
	watch.read(calmScrapes)

	watch.phase("replaying")
	repeats := s.echoes()
	all := []string{"--mode", "topic", "--rate", "0"}
	late := s.killedOften(all, members)
	before := s.origins(members...).accepted
	both := []*replay{s.replays(all, withoutFlood), s.replays(all, withoutFlood)}
	s.await("members have accepted records of one of them", func() (bool, error) {
		return s.origins(members...).accepted > before || !both[0].Running() && !both[1].Running(), nil
	})
	for _, fault := range late {
		fault.Release(true)
	}
	for _, r := range both {
		result := r.ended(0)
		t.Logf("%s: %d rows, left out %v", r.Name, result.Rows, result.LeftOut)
	}
	if out := s.replays(all, withoutFlood); out.ended(0).Rows != 0 || !strings.Contains(out.Tail(), "nothing to do") {
		t.Errorf("there are dead letters left: %s", out.Tail())
	}
	watch.phase("")
	watch.read(calmScrapes)
	watch.end()
	end()
	echoed := repeats()
	copies, path := s.inTopic(keys, bad)
	t.Logf("%d of them are echoes", echoed)
	if echoed == 0 {
		t.Error("no record was produced again while a replay ran")
	}
	made := s.produceOrigins(keys, copies)
	s.awaitPassed()
	s.countsOrigins(members, copies, made)
	for _, m := range members {
		m.drain()
	}
	s.untilCurrent(withoutFlood)

	s.checkSets("--readers", "deltalake,duckdb", "--copies", path)
	s.wants(0, "verify", "--kafka")
	s.wants(0, "audit", "verify")
	c := s.countLetters(withoutFlood)
	if want := (letterCounts{Letters: c.Letters, Distinct: replayedThroughTopic, Replayed: replayedThroughTopic}); c != want {
		t.Errorf("list says %+v, want %+v", c, want)
	}
	rows, _ := s.replayRows()
	intents := s.intents()
	t.Logf("intents by outcome: %v", intents)
	if rows != 0 || intents[""] > 0 {
		t.Errorf("replays committed %d rows, want those of members alone; %d intents have no outcome", rows, intents[""])
	}
	watch.compare("replaying")
}

// countsOrigins expects members to have accepted one copy of each dead letter, to have left out the other copies, and to
// have taken the records with made origins for ordinary ones. made is the counts of the latter and of the last repeats.
// Members count a refused origin when they read it, so there may be more of those.
func (s *scene) countsOrigins(members []*member, copies map[int32][]*kgo.Record, made originResults) {
	s.t.Helper()
	want, got := made, originResults{}
	want.accepted = replayedThroughTopic
	for _, of := range copies {
		want.repeated += len(of)
	}
	want.repeated -= want.accepted
	s.await("members have counted the commits", func() (bool, error) { // which takes effect before they count it
		got = s.origins(members...)
		return got.accepted+got.repeated+got.unknown >= want.accepted+want.repeated+want.unknown, nil
	})
	s.t.Logf("members counted %+v", got)
	if got.forged >= want.forged && got.refusedUnknown >= want.refusedUnknown {
		got.forged, got.refusedUnknown = want.forged, want.refusedUnknown
	}
	if got != want {
		s.t.Errorf("members counted %+v, want %+v", got, want)
	}
}
