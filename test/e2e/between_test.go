//go:build lab

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/reliability/deadletter"
	"sluice/test/gen"
	"sluice/test/lab"
)

// withLetters lets bad records become dead letters.
func withLetters(c *settings) { c.bad = "dead_letter" }

// spoil makes a share of the records, of 1000, bad ones from now on. Their own ledger takes them.
func (s *scene) spoil(share int) {
	s.t.Helper()
	s.orders.Bad = share
	if s.badLedger == nil {
		s.badLedger = s.newLedger("letters.csv")
	}
}

// spoiled returns the bad records so far, by partition and offset, as [gen.Record.Raw] says them.
func (s *scene) spoiled() map[string]string {
	s.t.Helper()
	if err := s.badLedger.Flush(); err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(s.badLedger.Path)
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if at := strings.SplitN(strings.TrimSpace(line), ",", 4); len(at) == 4 && at[0] == s.name {
			all[at[1]+"@"+at[2]] = at[3]
		}
	}
	return all
}

// written returns the dead letters in the topic's dead-letter topic: those that differ by their coordinates, as the ledger
// says them, and how many there are in all. Repeats must be alike.
func (s *scene) written() (distinct map[string]string, all int) {
	s.t.Helper()
	topic := s.name + "-dlq"
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...), kgo.ConsumeTopics(topic))
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(s.ctx, topic)
	if err := errors.Join(err, ends.Error()); err != nil {
		s.t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	distinct = map[string]string{}
	for len(left) > 0 {
		fetches := client.PollFetches(s.ctx)
		if err := fetches.Err(); err != nil {
			s.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			rec := deadletter.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp.UnixMilli()}
			for _, h := range r.Headers {
				rec.Headers = append(rec.Headers, deadletter.Header{Key: h.Key, Value: h.Value})
			}
			l, err := deadletter.Parse(rec)
			if err != nil {
				s.t.Fatal(err)
			}
			bad := gen.Record{Key: l.Key, Value: l.Value, Code: string(l.Reason)}
			at := fmt.Sprintf("%d@%d", l.Source.ID, l.Source.Offset)
			if before, known := distinct[at]; known && before != bad.Raw() {
				s.t.Errorf("two letters of %s: %s and %s", at, before, bad.Raw())
			}
			distinct[at] = bad.Raw()
			all++
		})
	}
	return distinct, all
}

// passed returns how many dead letters the commits say that they passed.
func (s *scene) passed() (n int64) {
	s.t.Helper()
	for _, c := range s.commits() {
		var own struct {
			Ranges []struct {
				Letters int64 `json:"letters"`
			} `json:"ranges"`
		}
		if len(c.Info.Sluice) > 0 {
			if err := json.Unmarshal(c.Info.Sluice, &own); err != nil {
				s.t.Fatal(err)
			}
		}
		for _, r := range own.Ranges {
			n += r.Letters
		}
	}
	return n
}

// A member dies when its letters are durable and their commit is on its way: the next one writes them again, with the same
// coordinates and the same bytes. Nothing is in two places, nothing in none.
func TestKilledBetweenLettersAndCommit(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	s.produce(2000)
	s.untilCurrent() // the table exists, so that what is held is a commit with rows and letters
	s.spoil(100)
	s.produce(6000)
	proxy := s.proxy()
	fault := proxy.Break(lab.CommitPut, 1, lab.Hold)
	m := s.start(through(proxy), withLetters)
	s.met(fault)
	m.kill()
	void, _ := s.written()
	if len(void) == 0 {
		t.Fatal("a commit was on its way and no letter is there")
	}
	fault.Release(false)
	s.untilCurrent(withLetters)
	distinct, all := s.written()
	want := s.spoiled()
	if !maps.Equal(distinct, want) {
		t.Errorf("%d records have letters, %d are bad, or they differ", len(distinct), len(want))
	}
	if all < len(want)+len(void) {
		t.Errorf("%d letters of %d records, %d of them were written twice", all, len(want), len(void))
	}
	if n := s.passed(); n != int64(len(want)) {
		t.Errorf("the commits passed %d letters of %d", n, len(want))
	}
	s.check()
}

// A column may be null since the letters of a cut are durable, and the member dies before its commit: what was bad for want
// of that column becomes a row, and its letter is void.
func TestAlteredBetweenLettersAndCommit(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	s.produce(2000)
	s.untilCurrent()
	s.spoil(100)
	s.produce(6000)
	proxy := s.proxy()
	fault := proxy.Break(lab.CommitPut, 1, lab.Hold)
	m := s.start(through(proxy), withLetters)
	s.met(fault)
	void, _ := s.written()
	s.relax("order_id")
	m.kill()
	fault.Release(true) // its version is taken
	s.untilCurrent(withLetters)

	want, became := s.spoiled(), 0
	maps.DeleteFunc(want, func(_, raw string) bool {
		is := strings.HasPrefix(raw, "required_missing ")
		if is {
			became++
		}
		return is
	})
	distinct, _ := s.written()
	maps.DeleteFunc(void, func(_, raw string) bool { return !strings.HasPrefix(raw, "required_missing ") })
	if became == 0 || len(void) == 0 {
		t.Fatalf("%d records became rows, %d of them had letters: this shows nothing", became, len(void))
	}
	for at, raw := range want {
		if distinct[at] != raw {
			t.Errorf("%s has letter %q, want %q", at, distinct[at], raw)
		}
	}
	if n := s.passed(); n != int64(len(want)) {
		t.Errorf("the commits passed %d letters of %d", n, len(want))
	}
	if rows := s.rows(); rows != s.ledger.Len()+int64(became) {
		t.Errorf("%d rows, want %d good records and %d that became good", rows, s.ledger.Len(), became)
	}
	s.wants(0, "verify", "--kafka")
}

// relax does to the table what ALTER TABLE … ALTER COLUMN … DROP NOT NULL of another engine does.
func (s *scene) relax(column string) {
	s.t.Helper()
	key := func(version int) string { return fmt.Sprintf("%s/_delta_log/%020d.json", s.log.Table, version) }
	first, err := s.bucket.Get(s.ctx, key(0))
	if err != nil {
		s.t.Fatal(err)
	}
	lines := []string{`{"commitInfo":{"timestamp":1,"operation":"CHANGE COLUMN"}}`}
	for line := range strings.Lines(string(first)) {
		if !strings.HasPrefix(line, `{"metaData":`) {
			continue
		}
		field := `\"name\":\"` + column + `\",\"type\":\"string\",\"nullable\":`
		relaxed := strings.Replace(strings.TrimSpace(line), field+"false", field+"true", 1)
		if relaxed == strings.TrimSpace(line) {
			s.t.Fatalf("column %s is not NOT NULL in %s", column, line)
		}
		lines = append(lines, relaxed)
	}
	if err := s.bucket.Create(s.ctx, key(len(s.commits())), []byte(strings.Join(slices.Compact(lines), "\n")+"\n")); err != nil {
		s.t.Fatal(err)
	}
}
