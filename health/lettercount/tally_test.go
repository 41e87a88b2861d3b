package lettercount_test

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/classify"
	"sluice/health/lettercount"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
)

func partition(topic string, id int32) idempotency.Partition {
	return idempotency.Partition{Cluster: "c", Topic: topic, TopicID: idempotency.TopicID{byte(len(topic))}, ID: id}
}

// written is a dead letter in a partition of a dead-letter topic: the coordinates of its record, and its class.
type written struct {
	about idempotency.Coordinates
	class classify.Class
}

// simulation has dead-letter partitions, and the positions, logs and rows of source partitions. It counts unresolved
// letters by their definition.
type simulation struct {
	dead      map[idempotency.Partition][]written // the letters of each dead-letter partition, by offset
	start     map[idempotency.Partition]int64
	archived  map[idempotency.Partition]int64 // the letter table has the letters at lower offsets
	fails     bool                            // true if the reading of dead letters fails at the first missing span
	positions map[idempotency.Partition]int64
	logs      map[idempotency.Partition]lettercount.Log // a partition without an entry has all offsets
	gone      map[idempotency.Partition]bool            // true if the partition's topic was deleted or created again
	rows      map[idempotency.Coordinates]bool
	done      map[idempotency.Coordinates]bool // true if an operator discarded or acknowledged the letter
}

// kept returns which letters of a dead-letter partition still exist.
func (w *simulation) kept(p idempotency.Partition) lettercount.Kept {
	return lettercount.Kept{Archived: w.archived[p], Start: w.start[p], End: int64(len(w.dead[p]))}
}

// letters returns the letters of a dead-letter partition that still exist.
func (w *simulation) letters(p idempotency.Partition) (all []written) {
	kept := w.kept(p)
	for offset, l := range w.dead[p] {
		if at := int64(offset); at < kept.Archived || at >= kept.Start {
			all = append(all, l)
		}
	}
	return all
}

func (w *simulation) position(p idempotency.Partition) int64 { return w.positions[p] }

func (w *simulation) log(p idempotency.Partition) lettercount.Log {
	if log, known := w.logs[p]; known {
		return log
	}
	return lettercount.Log{End: 1 << 60}
}

// at returns what a tally needs to know of a source partition: its position and its log.
func (w *simulation) at(p idempotency.Partition) lettercount.Position {
	if w.gone[p] {
		return lettercount.Position{Next: w.positions[p]}
	}
	return lettercount.Position{Next: w.positions[p], Log: w.log(p)}
}

// resolved returns the dead letters of a partition that an operator resolved.
func (w *simulation) resolved(p idempotency.Partition) offsets.Set {
	var all []int64
	for at := range w.done {
		if at.Partition == p {
			all = append(all, at.Offset)
		}
	}
	return offsets.Of(all...)
}

// unresolved reports whether a letter is unresolved, by the definition: the table is past the record and has no row of
// it, or no member can read the record any more, and no operator resolved it.
func (w *simulation) unresolved(at idempotency.Coordinates) bool {
	if w.done[at] {
		return false
	}
	log := w.log(at.Partition)
	if at.Offset < w.positions[at.Partition] {
		return !w.rows[at]
	}
	return w.gone[at.Partition] || at.Offset < log.Start || at.Offset >= log.End
}

func (w *simulation) count(topic string) map[classify.Class]int64 {
	class := map[idempotency.Coordinates]classify.Class{}
	for p := range w.dead {
		for _, l := range w.letters(p) {
			if old, ok := class[l.about]; !ok || l.class < old {
				class[l.about] = l.class
			}
		}
	}
	counts := make(map[classify.Class]int64)
	for at, c := range class {
		if at.Topic == topic && w.unresolved(at) {
			counts[c]++
		}
	}
	return counts
}

// beyond reports whether a source partition has a letter at or after its position.
func (w *simulation) beyond(of idempotency.Partition) bool {
	for p := range w.dead {
		for _, l := range w.letters(p) {
			if l.about.Partition == of && l.about.Offset >= w.positions[of] {
				return true
			}
		}
	}
	return false
}

// look brings a tally up to date with the simulation, as a member does. It reads the dead-letter log in parts of answer
// letters. most is the largest number of letters that it judges at once.
func (w *simulation) look(t rapid.TB, tally *lettercount.Tally, answer int64, most int) {
	tally.Keep(func(p idempotency.Partition) bool { _, there := w.dead[p]; return there })
	for p, all := range w.dead {
		for _, span := range tally.Missing(p, w.kept(p)) {
			if span.Archived != (span.From < w.start[p]) || span.Archived != (span.To <= w.start[p]) || span.From >= span.To {
				t.Fatalf("%+v of %+v", span, w.kept(p))
			}
			for at := span.From; at < span.To; {
				next := min(at+answer, span.To)
				if span.Archived || at == span.From {
					tally.Begin(p, lettercount.Span{From: at, To: next, Archived: span.Archived})
				}
				for i := range next - at {
					if l := all[at+i]; span.Archived { // a letter table has them in any order
						l = all[next-1-i]
						tally.Add(p, next-1-i, l.about, l.class)
					} else {
						tally.Add(p, at+i, l.about, l.class)
					}
				}
				if w.fails {
					return
				}
				if at = next; tally.Passed(p, next) != nil {
					t.Fatal("not passed")
				}
			}
		}
	}
	for _, topic := range tally.Topics() {
		for {
			parts := tally.Unjudged(topic, w.position, most)
			if len(parts) == 0 {
				break
			}
			n := 0
			for _, part := range parts {
				var void []int64
				for _, offset := range part.Offsets {
					n++
					if offset >= w.positions[part.Source] {
						t.Fatalf("%v@%d is to be judged, the position is %d", part.Source, offset, w.positions[part.Source])
					}
					if w.rows[idempotency.Coordinates{Partition: part.Source, Offset: offset}] {
						void = append(void, offset)
					}
				}
				tally.Judged(part, void)
			}
			if n == 0 || n > most {
				t.Fatalf("%d letters to judge at once, %d are allowed", n, most)
			}
		}
	}
}

// TestTally: letters, positions, rows and logs change at random. Both a tally that followed the changes and a new one
// have the count of the definition.
func TestTally(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dead := []idempotency.Partition{partition("dlq", 0), partition("dlq", 1), partition("dlq-2", 0)}
		sources := []idempotency.Partition{partition("a", 0), partition("a", 1), partition("bb", 0), {Cluster: "c", Topic: "a", TopicID: idempotency.TopicID{9}}}
		w := &simulation{
			dead: map[idempotency.Partition][]written{}, start: map[idempotency.Partition]int64{},
			positions: map[idempotency.Partition]int64{}, rows: map[idempotency.Coordinates]bool{}, done: map[idempotency.Coordinates]bool{},
			logs: map[idempotency.Partition]lettercount.Log{}, gone: map[idempotency.Partition]bool{}, archived: map[idempotency.Partition]int64{},
		}
		tally := lettercount.New(1 << 20)
		replay := func(t *rapid.T, sources ...idempotency.Partition) {
			of := rapid.SampledFrom(sources).Draw(t, "of")
			var all []int64
			for range rapid.IntRange(1, 10).Draw(t, "n") {
				at := idempotency.Coordinates{Partition: of, Offset: rapid.Int64Range(0, 70).Draw(t, "replayed")}
				if at.Offset < w.positions[of] { // a replay adds no row that members may still add
					w.rows[at] = true
					all = append(all, at.Offset)
				}
			}
			tally.HasRows(of, offsets.Of(all...))
		}
		decide := func(t *rapid.T, topic string) {
			for range rapid.IntRange(0, 5).Draw(t, "decisions") {
				of := rapid.SampledFrom(sources).Draw(t, "of")
				if at := (idempotency.Coordinates{Partition: of, Offset: rapid.Int64Range(0, 70).Draw(t, "decided")}); of.Topic == topic {
					w.done[at] = rapid.IntRange(0, 2).Draw(t, "resolved") > 0
					maps.DeleteFunc(w.done, func(_ idempotency.Coordinates, done bool) bool { return !done })
				}
			}
		}
		check := func() {
			fresh := lettercount.New(1 << 20)
			answer, most := rapid.Int64Range(1, 20).Draw(t, "answer"), rapid.IntRange(1, 30).Draw(t, "most")
			w.look(t, fresh, answer, most)
			w.look(t, tally, answer, most)
			for _, topic := range []string{"a", "bb"} {
				want := w.count(topic)
				for range 2 { // counting twice gives the same result
					if d := cmp.Diff(want, tally.Count(topic, w.at, w.resolved)); d != "" {
						t.Fatalf("%s, followed (-want +got):\n%s", topic, d)
					}
				}
				var beyond []idempotency.Partition
				for _, of := range sources {
					if of.Topic == topic && w.beyond(of) {
						beyond = append(beyond, of)
					}
				}
				less := func(a, b idempotency.Partition) bool { return fmt.Sprint(a) < fmt.Sprint(b) }
				if d := cmp.Diff(beyond, tally.Beyond(topic, w.position), cmpopts.SortSlices(less)); d != "" {
					t.Fatalf("%s, beyond the positions (-want +got):\n%s", topic, d)
				}
				if d := cmp.Diff(want, fresh.Count(topic, w.at, w.resolved)); d != "" {
					t.Fatalf("%s, started now (-want +got):\n%s", topic, d)
				}
				decide(t, topic)
				if rapid.Bool().Draw(t, "replayed since") {
					replay(t, slices.DeleteFunc(slices.Clone(sources), func(of idempotency.Partition) bool { return of.Topic != topic })...)
				}
				if got, ok := tally.Recount(topic, w.resolved); !ok || !maps.Equal(w.count(topic), got) {
					t.Fatalf("%s after new decisions: %v (%v), want %v", topic, got, ok, w.count(topic))
				}
			}
		}
		steps := map[string]func(*rapid.T){
			"letters": func(t *rapid.T) {
				p, of := rapid.SampledFrom(dead).Draw(t, "dead"), rapid.SampledFrom(sources).Draw(t, "of")
				first := rapid.Int64Range(0, 60).Draw(t, "first")
				for i := range rapid.Int64Range(1, 10).Draw(t, "n") {
					class := classify.Poison
					if rapid.IntRange(0, 9).Draw(t, "class") == 0 {
						class = classify.Transient
					}
					w.dead[p] = append(w.dead[p], written{idempotency.Coordinates{Partition: of, Offset: first + i*rapid.Int64Range(0, 3).Draw(t, "gap")}, class})
				}
			},
			"commit": func(t *rapid.T) {
				of := rapid.SampledFrom(sources).Draw(t, "of")
				for range rapid.IntRange(1, 10).Draw(t, "n") {
					at := idempotency.Coordinates{Partition: of, Offset: w.positions[of]}
					w.rows[at] = w.rows[at] || rapid.Bool().Draw(t, "row")
					w.positions[of]++
				}
			},
			"set back": func(t *rapid.T) {
				of := rapid.SampledFrom(sources).Draw(t, "of")
				to := rapid.Int64Range(0, w.positions[of]).Draw(t, "to")
				tally.Back(of, to)
				for range rapid.Int64Range(0, w.positions[of]-to).Draw(t, "again") { // records that are read again may add rows, but do not remove any
					at := idempotency.Coordinates{Partition: of, Offset: to}
					w.rows[at] = w.rows[at] || rapid.Bool().Draw(t, "row")
					to++
				}
				w.positions[of] = to
			},
			"replay":    func(t *rapid.T) { replay(t, sources...) },
			"decisions": func(t *rapid.T) { decide(t, rapid.SampledFrom([]string{"a", "bb"}).Draw(t, "topic")) },
			"rows go": func(t *rapid.T) {
				topic := rapid.SampledFrom([]string{"a", "bb"}).Draw(t, "topic")
				maps.DeleteFunc(w.rows, func(at idempotency.Coordinates, _ bool) bool { return at.Topic == topic && at.Offset%2 == 0 })
				tally.Again(topic)
			},
			"retention": func(t *rapid.T) {
				p := rapid.SampledFrom(dead).Draw(t, "dead")
				w.start[p] = rapid.Int64Range(w.start[p], int64(len(w.dead[p]))).Draw(t, "start")
			},
			"archive": func(t *rapid.T) { // by members that have the letters, even if retention deleted them since
				p := rapid.SampledFrom(dead).Draw(t, "dead")
				w.archived[p] = rapid.Int64Range(w.archived[p], int64(len(w.dead[p]))).Draw(t, "archived")
			},
			"a letter table goes": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "goes") == 0 {
					delete(w.archived, rapid.SampledFrom(dead).Draw(t, "dead"))
				}
			},
			"the reading fails": func(t *rapid.T) {
				w.fails = true
				w.look(t, tally, rapid.Int64Range(1, 20).Draw(t, "answer"), 30)
				w.fails = false
				for _, topic := range []string{"a", "bb"} {
					tally.Count(topic, w.at, w.resolved) // its result is not used, but it forgets judgements about dead letters that it misses
				}
			},
			"the log moves": func(t *rapid.T) {
				of := rapid.SampledFrom(sources).Draw(t, "of")
				start := rapid.Int64Range(0, 60).Draw(t, "start")
				w.logs[of] = lettercount.Log{Start: start, End: rapid.Int64Range(start, 90).Draw(t, "end")}
			},
			"a topic goes, and is seen again": func(t *rapid.T) {
				w.gone[rapid.SampledFrom(sources).Draw(t, "of")] = rapid.Bool().Draw(t, "gone")
			},
			"created again": func(t *rapid.T) {
				i := rapid.IntRange(0, len(dead)-1).Draw(t, "dead")
				delete(w.dead, dead[i])
				delete(w.start, dead[i])
				delete(w.archived, dead[i])
				dead[i].TopicID[1]++
			},
			"look": func(*rapid.T) { check() },
		}
		t.Repeat(steps)
		check()
	})
}

// TestTallyForgets: when retention deletes letters, only the slice in which the deleted part ends is read again, and
// memory is freed.
func TestTallyForgets(t *testing.T) {
	p, of := partition("dlq", 0), partition("a", 0)
	tally := lettercount.New(64 << 20)
	const n = 300_000
	w := &simulation{
		dead: map[idempotency.Partition][]written{}, start: map[idempotency.Partition]int64{},
		positions: map[idempotency.Partition]int64{of: 10 * n}, rows: map[idempotency.Coordinates]bool{},
	}
	for i := range int64(n) {
		w.dead[p] = append(w.dead[p], written{idempotency.Coordinates{Partition: of, Offset: 7 * i}, classify.Poison})
	}
	w.look(t, tally, 1000, 50_000)
	if got := tally.Count("a", w.at, w.resolved)[classify.Poison]; got != n {
		t.Errorf("%d", got)
	}
	before := tally.Bytes()
	w.start[p] = 200_000
	missing := tally.Missing(p, lettercount.Kept{Start: 200_000, End: n})
	if read := missing[0].To - missing[0].From; len(missing) != 1 || missing[0].From != 200_000 || read > 1<<17 {
		t.Errorf("%+v", missing)
	}
	w.look(t, tally, 1000, 50_000)
	w.look(t, tally, 1000, 50_000)
	if got := tally.Count("a", w.at, w.resolved)[classify.Poison]; got != n-200_000 || tally.Bytes() > before*2/3 {
		t.Errorf("%d letters, %d bytes of %d", got, tally.Bytes(), before)
	}
	w.start[p] = n
	w.look(t, tally, 1000, 50_000)
	if got := tally.Count("a", w.at, w.resolved)[classify.Poison]; got != 0 || tally.Bytes() > 1000 {
		t.Errorf("%d letters, %d bytes", got, tally.Bytes())
	}
}

// TestTally_Kept: the ranges to read of a partition whose dead letters at [0, 40) were read, all from the topic.
func TestTally_Kept(t *testing.T) {
	p := partition("dlq", 0)
	span := func(from, to int64) lettercount.Span { return lettercount.Span{From: from, To: to} }
	stored := func(from, to int64) lettercount.Span {
		return lettercount.Span{From: from, To: to, Archived: true}
	}
	for _, c := range []struct {
		name string
		kept lettercount.Kept
		want []lettercount.Span
	}{
		{"nothing is new", lettercount.Kept{End: 40}, nil},
		{"a new dead letter", lettercount.Kept{End: 41}, []lettercount.Span{span(40, 41)}},
		{"no letter table", lettercount.Kept{Start: 10, End: 40}, []lettercount.Span{span(10, 40)}},
		{"all that retention deleted is archived", lettercount.Kept{Archived: 30, Start: 30, End: 40}, nil},
		{"more is archived than retention deleted", lettercount.Kept{Archived: 40, Start: 10, End: 41}, []lettercount.Span{span(40, 41)}},
		{"some was lost", lettercount.Kept{Archived: 10, Start: 30, End: 40}, []lettercount.Span{stored(0, 10), span(30, 40)}},
		{"all is archived, and nothing in the topic", lettercount.Kept{Archived: 40, Start: 40, End: 40}, nil},
		{"not all is archived, and nothing in the topic", lettercount.Kept{Archived: 39, Start: 40, End: 40}, []lettercount.Span{stored(0, 39)}},
		{"retention was faster than the reading", lettercount.Kept{Archived: 50, Start: 45, End: 60}, []lettercount.Span{stored(40, 45), span(45, 60)}},
		{"truncated", lettercount.Kept{Archived: 40, Start: 10, End: 39}, []lettercount.Span{stored(0, 10), span(10, 39)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tally := lettercount.New(1 << 20)
			tally.Missing(p, lettercount.Kept{End: 40})
			tally.Begin(p, span(0, 40))
			if err := tally.Passed(p, 40); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, tally.Missing(p, c.kept)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.want, tally.Missing(p, c.kept)); d != "" {
				t.Errorf("asked again (-want +got):\n%s", d)
			}
		})
	}
}

// TestTally_ReadingFailedBeforeACount: retention drops dead letters, and their rest cannot be read before the next
// count. Once it is read, those whose records have rows are void as before.
func TestTally_ReadingFailedBeforeACount(t *testing.T) {
	p, other, of := partition("dlq", 0), partition("dlq", 1), partition("a", 0)
	w := &simulation{
		dead: map[idempotency.Partition][]written{}, start: map[idempotency.Partition]int64{},
		positions: map[idempotency.Partition]int64{of: 100}, rows: map[idempotency.Coordinates]bool{},
	}
	for i := range int64(10) {
		at := idempotency.Coordinates{Partition: of, Offset: i}
		w.dead[p] = append(w.dead[p], written{at, classify.Poison})
		w.rows[at] = true
	}
	w.dead[other] = []written{{idempotency.Coordinates{Partition: of, Offset: 50}, classify.Poison}}
	tally := lettercount.New(1 << 20)
	w.look(t, tally, 100, 100)
	if got := tally.Count("a", w.at, w.resolved)[classify.Poison]; got != 1 {
		t.Fatalf("%d letters are unresolved, want 1", got)
	}
	w.start[p] = 2
	tally.Missing(p, w.kept(p)) // the reading fails
	tally.Count("a", w.at, w.resolved)
	w.look(t, tally, 100, 100)
	if got := tally.Count("a", w.at, w.resolved)[classify.Poison]; got != 1 {
		t.Errorf("%d letters are unresolved, want 1", got)
	}
}

// TestTallyOfAPositionThatWasSetBack: an unresolved letter becomes void if its record is read again and becomes a row.
func TestTallyOfAPositionThatWasSetBack(t *testing.T) {
	p, of := partition("dlq", 0), partition("a", 0)
	letter := idempotency.Coordinates{Partition: of, Offset: 5}
	w := &simulation{
		dead:      map[idempotency.Partition][]written{p: {{letter, classify.Poison}}},
		start:     map[idempotency.Partition]int64{},
		positions: map[idempotency.Partition]int64{of: 10}, rows: map[idempotency.Coordinates]bool{},
	}
	tally := lettercount.New(1 << 20)
	w.look(t, tally, 10, 10)
	if got := tally.Count("a", w.at, w.resolved)[classify.Poison]; got != 1 {
		t.Fatalf("%d letters stand, want 1", got)
	}
	tally.Back(of, 3)
	w.rows[letter] = true // the record has become a row, and the position is after it again
	w.look(t, tally, 10, 10)
	if got := tally.Count("a", w.at, w.resolved)[classify.Poison]; got != 0 {
		t.Errorf("%d letters stand, and the record has a row", got)
	}
}

// TestTallyIsFull: if letters are about very many partitions, Passed returns ErrFull once they take more memory than
// the tally may use. Once the letters are deleted, the tally is no longer full.
func TestTallyIsFull(t *testing.T) {
	p := partition("dlq", 0)
	tally := lettercount.New(1 << 20)
	tally.Begin(p, lettercount.Span{}) // has no effect, because Missing was not called before
	tally.Missing(p, lettercount.Kept{End: 1 << 30})
	tally.Begin(p, lettercount.Span{})
	var err error
	at := int64(0)
	for ; err == nil && at < 1<<20; at++ {
		tally.Add(p, at, idempotency.Coordinates{Partition: idempotency.Partition{Topic: "a", ID: int32(at)}, Offset: at}, classify.Poison)
		err = tally.Passed(p, at+1)
	}
	if !errors.Is(err, lettercount.ErrFull) || at > 2000 {
		t.Errorf("%v after %d letters", err, at)
	}
	tally.Missing(p, lettercount.Kept{Start: 1 << 20, End: 1 << 30})
	if err := tally.Full(); err != nil {
		t.Errorf("the letters are gone: %v", err)
	}
}

// TestTallyOfWhatCannotBeRead: if the reading of spans is begun again and again without reading a letter, the tally gets
// at most one slice for each.
func TestTallyOfWhatCannotBeRead(t *testing.T) {
	p := partition("dlq", 0)
	tally := lettercount.New(1 << 20)
	for range 100 {
		for _, span := range tally.Missing(p, lettercount.Kept{Archived: 3, Start: 5, End: 10}) {
			tally.Begin(p, span)
		}
	}
	if n := tally.Slices(); n > 2 {
		t.Errorf("%d slices of nothing", n)
	}
}

// TestTallyOfRepeats: if a record gets another letter, the record is judged again. It is counted once, however many
// letters it has.
func TestTallyOfRepeats(t *testing.T) {
	p, of := partition("dlq", 0), partition("a", 0)
	w := &simulation{
		dead: map[idempotency.Partition][]written{}, start: map[idempotency.Partition]int64{},
		positions: map[idempotency.Partition]int64{of: 100_000}, rows: map[idempotency.Coordinates]bool{},
	}
	tally := lettercount.New(16 << 20)
	for _, first := range []int64{50_000, 50_000, 20_000, 0} {
		for i := range int64(10_000) {
			w.dead[p] = append(w.dead[p], written{idempotency.Coordinates{Partition: of, Offset: first + i}, classify.Poison})
			w.rows[idempotency.Coordinates{Partition: of, Offset: first + i}] = i%10 == 0
		}
		w.look(t, tally, 1000, 1<<18)
		if d := cmp.Diff(w.count("a"), tally.Count("a", w.at, w.resolved)); d != "" {
			t.Errorf("after letters from %d on (-want +got):\n%s", first, d)
		}
	}
}

func TestRate(t *testing.T) {
	var r lettercount.Rate
	at := time.Unix(1_700_000_000, 0)
	for i := range 60 {
		r.Add(at.Add(time.Duration(i)*10*time.Second), 5)
	}
	end := at.Add(590 * time.Second)
	for _, c := range []struct {
		after time.Duration
		want  float64
	}{{0, 30}, {150 * time.Second, 15}, {5 * time.Minute, 0}, {time.Hour, 0}, {-time.Hour, 0}} {
		if got := r.PerMinute(end.Add(c.after)); got != c.want {
			t.Errorf("after %v: %v, want %v", c.after, got, c.want)
		}
	}
}

// TestTallyOfDecisions: Recount returns the right count after an operator resolves or reopens letters, and after a
// replay. It needs no new positions and judges no letter again.
func TestTallyOfDecisions(t *testing.T) {
	p, of := partition("dlq", 0), partition("a", 0)
	w := &simulation{
		dead:      map[idempotency.Partition][]written{},
		start:     map[idempotency.Partition]int64{},
		positions: map[idempotency.Partition]int64{of: 10}, rows: map[idempotency.Coordinates]bool{}, done: map[idempotency.Coordinates]bool{},
	}
	for i := range int64(12) { // the last two are pending
		w.dead[p] = append(w.dead[p], written{idempotency.Coordinates{Partition: of, Offset: i}, classify.Poison})
	}
	tally := lettercount.New(1 << 20)
	if got, ok := tally.Recount("a", none); !ok || len(got) > 0 {
		t.Errorf("a topic without dead letters: %v, %v", got, ok)
	}
	w.look(t, tally, 100, 100)
	if got, ok := tally.Recount("a", none); ok {
		t.Errorf("%v, and nothing was counted", got)
	}
	counts := func(what string, want int64) {
		t.Helper()
		got, ok := tally.Recount("a", w.resolved)
		if !ok || got[classify.Poison] != want {
			t.Errorf("%s: %v, want %d", what, got, want)
		}
	}
	if got := tally.Count("a", w.at, w.resolved)[classify.Poison]; got != 10 {
		t.Errorf("%d count, want 10", got)
	}
	at := func(offset int64) idempotency.Coordinates {
		return idempotency.Coordinates{Partition: of, Offset: offset}
	}
	w.done[at(3)], w.done[at(9)], w.done[at(11)] = true, true, true
	counts("two of those that count, and a pending one", 8)
	delete(w.done, at(3))
	counts("one of them reopened", 9)
	tally.HasRows(of, offsets.Of(4, 5, 9))
	counts("three replayed, one of them resolved before", 7)
	if got := tally.Count("a", w.at, w.resolved)[classify.Poison]; got != 7 {
		t.Errorf("%d count after a replay, want 7", got)
	}
	if parts := tally.Unjudged("a", w.position, 100); len(parts) > 0 {
		t.Errorf("the table is read again for a replay: %v", parts)
	}
	tally.HasRows(partition("unknown", 0), offsets.Of(1))
}

func none(idempotency.Partition) offsets.Set { return offsets.Set{} }

// BenchmarkMillion reads, judges and counts a million letters, each of them far from the next.
func BenchmarkMillion(b *testing.B) {
	for _, c := range []struct {
		name string
		gap  int64
	}{{"sparse", 100_003}, {"dense", 1}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				p := partition("dlq", 0)
				tally := lettercount.New(64 << 20)
				tally.Missing(p, lettercount.Kept{End: 1e6})
				tally.Begin(p, lettercount.Span{})
				for i := range int64(1e6) {
					tally.Add(p, i, idempotency.Coordinates{Partition: partition("a", int32(i%12)), Offset: i / 12 * c.gap}, classify.Poison)
					if err := tally.Passed(p, i+1); err != nil {
						b.Fatal(err)
					}
				}
				position := func(idempotency.Partition) int64 { return 1 << 60 }
				at := func(idempotency.Partition) lettercount.Position { return lettercount.Position{Next: 1 << 60} }
				for parts := tally.Unjudged("a", position, 1<<18); len(parts) > 0; parts = tally.Unjudged("a", position, 1<<18) {
					for _, part := range parts {
						tally.Judged(part, nil)
					}
				}
				began := time.Now()
				if n := tally.Count("a", at, none)[classify.Poison]; n != 1e6 {
					b.Fatal(n)
				}
				b.ReportMetric(time.Since(began).Seconds()*1000, "ms/count")
				b.ReportMetric(float64(tally.Bytes()), "bytes")
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc), "heap-bytes")
				runtime.KeepAlive(tally)
			}
		})
	}
}
