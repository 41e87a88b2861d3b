package delta_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// faultList has the faults of the puts and of the gets of version 2, each in order.
type faultList struct{ puts, gets []objstoretest.Fault }

// script returns a store with a table at version 1. Puts and gets of version 2 have the faults of list; those after the
// end of the list have none.
func script(t *testing.T, list faultList) *recordedStore {
	w := newRecordedStore(t, false, func(_ int, op objstore.Op) objstoretest.Fault {
		faults := &list.gets
		if op.Kind == objstore.OpPutIfAbsent {
			faults = &list.puts
		}
		if op.Key != deltalog.CommitKey(2) || len(*faults) == 0 {
			return objstoretest.Fault{}
		}
		f := (*faults)[0]
		*faults = (*faults)[1:]
		return f
	})
	load(t, open(t, w.mem))
	foreign(t, w.mem)
	return w
}

var (
	ok          = objstoretest.Fault{}
	unavailable = objstoretest.Fault{Err: objstoretest.ErrUnavailable}
	applied     = objstoretest.Fault{Err: objstoretest.ErrUnavailable, Effect: objstoretest.Done}
	lost5s      = objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: objstoretest.Late, Land: 5 * time.Second}
	// A proxy sent our put twice, and this answers the second one.
	exists   = objstoretest.Fault{Err: objstoretest.ErrExists, Effect: objstoretest.Done}
	conflict = objstoretest.Fault{Err: objstoretest.ErrConflict}
	denied   = objstoretest.Fault{Err: objstoretest.ErrDenied}
	broken   = objstoretest.Fault{Err: objstoretest.ErrUnavailable, Effect: objstoretest.Done} // for a get: the body breaks off in the middle
)

// TestOutcomes: after each put of a version whose outcome is uncertain, the table reads the version back, and puts the
// same bytes at the same version again until the outcome is known.
func TestOutcomes(t *testing.T) {
	type list = []objstoretest.Fault
	for name, c := range map[string]struct {
		faults faultList
		want   []string // operations on version 2
	}{
		"200": {faultList{}, []string{"put-if-absent ok"}},
		"500, it happened": {
			faultList{puts: list{applied}},
			[]string{"put-if-absent failed", "get ok"},
		},
		"503, nothing happened": {
			faultList{puts: list{unavailable}},
			[]string{"put-if-absent failed", "get not_found", "put-if-absent ok"},
		},
		"412 by our own put": {
			faultList{puts: list{exists}},
			[]string{"put-if-absent exists", "get ok"},
		},
		"409 three times": {
			faultList{puts: list{conflict, conflict, conflict}},
			[]string{
				"put-if-absent failed", "get not_found", "put-if-absent failed", "get not_found",
				"put-if-absent failed", "get not_found", "put-if-absent ok",
			},
		},
		"lands after it was read back": {
			faultList{puts: list{lost5s, unavailable, unavailable}},
			[]string{
				"put-if-absent failed", "get not_found", "put-if-absent failed", "get not_found",
				"put-if-absent failed", "get not_found", "put-if-absent exists", "get ok",
			},
		},
		"denied after an unresolved put": {
			faultList{puts: list{applied, denied}, gets: list{ok, ok, denied}},
			[]string{"put-if-absent failed", "get refused", "put-if-absent refused", "get ok"},
		},
		"the answer of the read back breaks off": {
			faultList{puts: list{applied}, gets: list{ok, ok, broken}},
			[]string{"put-if-absent failed", "get ok", "put-if-absent exists", "get ok"},
		},
		"nothing answers for long": {
			faultList{puts: list{{Linger: time.Hour}}, gets: list{ok, ok, {Linger: time.Hour}}},
			[]string{"put-if-absent failed", "get failed", "put-if-absent exists", "get ok"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, tr := script(t, c.faults), &trace{}
				defer w.faulty.Close()
				tab := open(t, objstoretest.Traced(w.faulty, tr.line))
				s := load(t, tab)
				if _, err := (rowRange{0, 0, 4}).write(t.Context(), tab, s); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, line := range tr.all() {
					kind, rest, _ := strings.Cut(line, " ")
					if key, outcome, _ := strings.Cut(rest, " -> "); key == deltalog.CommitKey(2) {
						got = append(got, kind+" "+outcome)
					}
				}
				// Two polls for new versions come before the first put.
				if want := append([]string{"get not_found", "get not_found"}, c.want...); strings.Join(got, ", ") != strings.Join(want, ", ") {
					t.Errorf("got  %v\nwant %v", got, want)
				}
				w.settle()
				check(t, w.mem, 4)
				noOrphans(t, w.mem)
				if _, err := w.mem.Head(t.Context(), deltalog.CommitKey(3)); err == nil {
					t.Error("there is a version 3")
				}
			})
		})
	}
}

// TestDamagedReadBack: if the table reads its own version back and the bytes are well-formed but damaged, it does not
// take them for another writer's commit.
func TestDamagedReadBack(t *testing.T) {
	for name, keep := range map[string]int{"empty": 0, "cut off": 50} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := script(t, faultList{puts: []objstoretest.Fault{applied}})
				defer w.faulty.Close()
				reads := 0
				tab := open(t, &truncated{Store: w.faulty, cut: func(key string) bool {
					if key == deltalog.CommitKey(2) {
						reads++
					}
					return key == deltalog.CommitKey(2) && reads == 3 // the first two reads are polls that find no new version
				}, keep: keep})
				s := load(t, tab)
				if _, err := (rowRange{0, 0, 4}).write(t.Context(), tab, s); err != nil {
					t.Fatal(err)
				}
				check(t, w.mem, 4)
				noOrphans(t, w.mem)
				if reads < 4 {
					t.Errorf("read %d times", reads)
				}
			})
		})
	}
}

// truncated is a store that returns only the first keep bytes of an object if cut returns true for its key.
type truncated struct {
	objstore.Store
	cut  func(key string) bool
	keep int
}

func (s *truncated) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	cut := s.cut(key)
	r, err := s.Store.Get(ctx, key, off, n)
	if err != nil || !cut {
		return r, err
	}
	b, err := io.ReadAll(r)
	return io.NopCloser(bytes.NewReader(b[:min(s.keep, len(b))])), errors.Join(err, r.Close())
}

// TestReplacedTableWithoutFiles: if the table was replaced since the caller saw it, a commit is refused, even a commit
// without files.
func TestReplacedTableWithoutFiles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		tab := open(t, mem)
		load(t, tab)
		m := alter(t, mem, ddl)
		m.ID = "another"
		foreign(t, mem, m)
		c := rowRange{0, 0, 4}
		_, err := tab.Commit(t.Context(), c.commit(nil), c.pre)
		holds(t, err, hold.TableReplaced, "another")
	})
}

// TestDenied: if the store denies the put of a version, the commit is a hold, and its data files are deleted.
func TestDenied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := script(t, faultList{puts: []objstoretest.Fault{denied}})
		defer w.faulty.Close()
		tab := open(t, w.faulty)
		s := load(t, tab)
		_, err := (rowRange{0, 0, 4}).write(t.Context(), tab, s)
		holds(t, err, hold.StoreDenied, "403")
		if errors.Is(err, connector.ErrUndecided) || len(files(t, w.mem)) != 0 {
			t.Errorf("files %v after %v", files(t, w.mem), err)
		}
		appendCommits(t, tab, 1) // the store denies no more, as after an operator has given the permission
		check(t, w.mem, 3)
	})
}

// TestLostRace: between our read of the log and our put, another writer commits the version that ours was to be. What
// it changes decides whether our commit becomes the next version, is fenced, or is a hold.
func TestLostRace(t *testing.T) {
	constraint := func(m deltalog.Metadata) deltalog.Metadata {
		m.Configuration = map[string]string{"delta.constraints.positive": "id > 0"}
		return m
	}
	other := func(m deltalog.Metadata) deltalog.Metadata {
		m.ID = "another"
		return m
	}
	for name, c := range map[string]struct {
		winner func(*testing.T, *recordedStore) []deltalog.Action
		err    func(*testing.T, error) // checks the error of the commit; nil if the commit succeeds
		kept   bool                    // the store still has the data files of the failed commit
	}{
		"files and txns of others": {
			winner: func(*testing.T, *recordedStore) []deltalog.Action {
				return []deltalog.Action{deltalog.Txn{AppID: "else", Version: 3}, deltalog.Remove{Path: "x.parquet"}}
			},
		},
		"a nullable column is added": {winner: func(t *testing.T, w *recordedStore) []deltalog.Action {
			return []deltalog.Action{alter(t, w.mem, ddl+", added string")}
		}},
		"a column is dropped": {
			winner: func(t *testing.T, w *recordedStore) []deltalog.Action {
				return []deltalog.Action{alter(t, w.mem, "id bigint")}
			},
			err: fenced("name"),
		},
		"a column is NOT NULL": {
			winner: func(t *testing.T, w *recordedStore) []deltalog.Action {
				return []deltalog.Action{alter(t, w.mem, ddl+", added string not null")}
			},
			err: fenced("added"),
		},
		"our txn moves": {
			winner: func(*testing.T, *recordedStore) []deltalog.Action {
				return []deltalog.Action{deltalog.Txn{AppID: app(0), Version: 2}}
			},
			err: fenced("moved"),
		},
		"a constraint": {
			winner: func(t *testing.T, w *recordedStore) []deltalog.Action {
				return []deltalog.Action{constraint(alter(t, w.mem, ddl))}
			},
			err: heldFor(hold.TableUnsupported, "CHECK constraint"),
		},
		"a protocol with features": {
			winner: func(*testing.T, *recordedStore) []deltalog.Action {
				return []deltalog.Action{deltalog.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"deletionVectors"}, WriterFeatures: []string{"deletionVectors"}}}
			},
			err: heldFor(hold.TableUnsupported, "deletionVectors"),
		},
		"another table": {
			winner: func(t *testing.T, w *recordedStore) []deltalog.Action {
				return []deltalog.Action{other(alter(t, w.mem, ddl))}
			},
			err: heldFor(hold.TableReplaced, "another"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newRecordedStore(t, true, func(int, objstore.Op) objstoretest.Fault { return objstoretest.Fault{} })
				tab := open(t, w.faulty)
				s := load(t, tab)
				first := true
				staged, err := tab.Stage(t.Context(), s, "b-1", []connector.Piece{rows(s.Schema, 0, 0, 4)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				committed, err := tab.Commit(t.Context(), rowRange{0, 0, 4}.commit(staged), func(s *connector.Snapshot) error {
					err := rowRange{0, 0, 4}.pre(s)
					if first {
						first = false
						foreign(t, w.mem, c.winner(t, w)...)
					}
					return err
				})
				if c.err != nil {
					c.err(t, err)
					tab.Discard(t.Context(), staged)
					if left := files(t, w.mem); len(left) != 0 {
						t.Errorf("files stay: %v", left)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if committed.Version != 3 || committed.Positions[app(0)] != 4 {
					t.Errorf("%+v", committed)
				}
				check(t, w.mem, 4)
				noOrphans(t, w.mem)
			})
		})
	}
}

func fenced(text string) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		var held *hold.Error
		if classify.Of(err) != classify.Fenced || errors.As(err, &held) || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want a fence with %q", err, text)
		}
	}
}

func heldFor(reason hold.Reason, text string) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		holds(t, err, reason, text)
	}
}

// TestOldSnapshot: a commit waits ten minutes for the store to return. Before it puts again, it checks that the version
// before its own still exists.
func TestOldSnapshot(t *testing.T) {
	for name, c := range map[string]struct {
		applied, cleaned bool
		want             func(*testing.T, error)
	}{
		"the log is as it was":                  {},
		"the put had landed":                    {applied: true},
		"the log is cleaned up beyond us":       {cleaned: true, want: fenced("undecided")},
		"the put had landed and was cleaned up": {applied: true, cleaned: true, want: fenced("undecided")},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				outage, began := false, time.Time{}
				w := newRecordedStore(t, true, func(_ int, op objstore.Op) objstoretest.Fault {
					switch {
					case !outage || time.Since(began) > 10*time.Minute:
						return objstoretest.Fault{}
					case op.Kind == objstore.OpPutIfAbsent && c.applied:
						return applied
					}
					return unavailable
				})
				tr := &trace{}
				tab := open(t, objstoretest.Traced(w.faulty, tr.line))
				s := load(t, tab)
				staged, err := tab.Stage(t.Context(), s, "b-1", []connector.Piece{rows(s.Schema, 0, 0, 4)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if c.cleaned {
					time.AfterFunc(9*time.Minute, func() {
						// Meanwhile other writers continue, and the log is cleaned up to version 20.
						stranger := open(t, w.mem)
						at := load(t, stranger).Positions[app(0)]
						for i := range int64(20) {
							k := rowRange{1, i, i + 1}
							if _, err := stranger.Commit(t.Context(), k.commit(nil), k.pre); err != nil {
								t.Error(err)
							}
						}
						stranger.Close()
						if c.applied != (at == 4) {
							t.Errorf("position %d", at)
						}
						now, err := deltalog.Load(t.Context(), w.mem)
						if err != nil {
							t.Error(err)
							return
						}
						if _, err := deltalog.WriteCheckpoint(t.Context(), w.mem, now, time.Now(), ""); err != nil {
							t.Error(err)
						}
						for v := range now.Version - 1 {
							_ = w.mem.Delete(t.Context(), deltalog.CommitKey(v))
						}
					})
				}
				_, err = tab.Commit(t.Context(), rowRange{0, 0, 4}.commit(staged), func(s *connector.Snapshot) error {
					outage, began = true, time.Now()
					return rowRange{0, 0, 4}.pre(s)
				})
				heads := 0
				for _, line := range tr.all() {
					if strings.HasPrefix(line, "head "+deltalog.CommitKey(1)) {
						heads++
					}
				}
				if heads == 0 {
					t.Error("the version before was not looked at")
				}
				if c.want == nil {
					if err != nil {
						t.Fatal(err)
					}
					check(t, w.mem, 4)
					return
				}
				c.want(t, err)
				if !errors.Is(err, connector.ErrUndecided) {
					t.Error("not undecided")
				}
				tab.Discard(t.Context(), staged)
				if len(files(t, w.mem)) != 1 {
					t.Error("files of an undecided commit were deleted")
				}
				s = load(t, tab) // the snapshot from the current log
				if want := map[bool]int64{true: 4, false: 0}[c.applied]; s.Positions[app(0)] != want || s.Version < 20 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestSleptPastCleanup: a process slept while the log was cleaned up, and then finds that the next version is missing.
// It must not commit as that version, because the cleanup may have removed it.
func TestSleptPastCleanup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newRecordedStore(t, true, func(int, objstore.Op) objstoretest.Fault { return objstoretest.Fault{} })
		tab := open(t, w.faulty)
		s := appendCommits(t, tab, 2)
		stranger := open(t, w.mem)
		appendCommits(t, stranger, 15)
		now, err := deltalog.Load(t.Context(), w.mem)
		if err != nil {
			t.Fatal(err)
		}
		for v := range now.Checkpoint.Version {
			_ = w.mem.Delete(t.Context(), deltalog.CommitKey(v))
		}
		time.Sleep(25 * time.Hour)
		at := s.Positions[app(0)]
		if _, err := (rowRange{0, at, at + 3}).write(t.Context(), tab, s); classify.Of(err) != classify.Fenced {
			t.Fatalf("got %v", err)
		}
		if s := load(t, tab); s.Version != now.Version {
			t.Errorf("version %d, newest is %d", s.Version, now.Version)
		}
		appendCommits(t, tab, 1)
	})
}

// TestCommit_SleepBeforePut: if a process sleeps between its read of the log and its put, so that the check of the log
// is too old, the request of the put is not sent.
func TestCommit_SleepBeforePut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newRecordedStore(t, true, func(int, objstore.Op) objstoretest.Fault { return objstoretest.Fault{} })
		slept := false
		store := &sleepy{Store: w.faulty, before: func(key string) {
			if key == deltalog.CommitKey(2) && !slept {
				slept = true
				time.Sleep(2 * time.Hour)
			}
		}}
		tr := &trace{}
		tab := open(t, objstoretest.Traced(store, tr.line))
		s := load(t, tab)
		if _, err := (rowRange{0, 0, 4}).write(t.Context(), tab, s); err != nil {
			t.Fatal(err)
		}
		check(t, w.mem, 4)
		want := "put-if-absent " + deltalog.CommitKey(2) + " -> not_sent\nhead " + deltalog.CommitKey(1) + " -> ok\nput-if-absent " + deltalog.CommitKey(2) + " -> ok"
		if got := strings.Join(tr.all(), "\n"); !strings.Contains(got, want) {
			t.Errorf("got\n%s", got)
		}
	})
}

// sleepy is a store whose process stops, with its clocks, when it is about to send a put.
type sleepy struct {
	objstore.Store
	before func(key string)
}

func (s *sleepy) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	s.before(key)
	if err := objstore.LastCheck(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return s.Store.Put(objstore.WithLastCheck(context.WithoutCancel(ctx), nil), key, body, mode)
}

// TestOverwrittenCommit: a writer without conditional puts overwrites our commit. The next commit is fenced, the
// positions are those of the log again, and the metric counts this once.
func TestOverwrittenCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem, reg := objstore.NewMem(), prometheus.NewRegistry()
		tab := open(t, mem, measured(reg))
		s := appendCommits(t, tab, 2)
		if s.Positions[app(0)] != 6 {
			t.Fatal(s)
		}
		put(t, mem, deltalog.CommitKey(2), `{"commitInfo":{"txnId":"careless"}}`)
		at := s.Positions[app(0)]
		if _, err := (rowRange{0, at, at + 3}).write(t.Context(), tab, s); classify.Of(err) != classify.Fenced {
			t.Fatalf("got %v", err)
		}
		if s = load(t, tab); s.Positions[app(0)] != 3 {
			t.Errorf("position %d", s.Positions[app(0)])
		}
		if got := metric(t, reg, "sluice_delta_commits_overwritten_total"); got != 1 {
			t.Errorf("counted %v", got)
		}
		appendCommits(t, tab, 2)
		if got := metric(t, reg, "sluice_delta_commits_overwritten_total"); got != 1 {
			t.Errorf("counted %v", got)
		}
	})
}

// TestVanishedCommit: our commit is missing, as after a restore of the bucket. The next load returns the positions of
// the version before it.
func TestVanishedCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem, reg := objstore.NewMem(), prometheus.NewRegistry()
		tab := open(t, mem, measured(reg))
		appendCommits(t, tab, 2)
		if err := mem.Delete(t.Context(), deltalog.CommitKey(2)); err != nil {
			t.Fatal(err)
		}
		if s := load(t, tab); s.Version != 1 || s.Positions[app(0)] != 3 {
			t.Errorf("%+v", s)
		}
		if got := metric(t, reg, "sluice_delta_commits_overwritten_total"); got != 1 {
			t.Errorf("counted %v", got)
		}
		appendCommits(t, tab, 1)
		check(t, mem, 6)
	})
}

func TestFilesAreCommittedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		tab := open(t, mem)
		s := load(t, tab)
		staged, err := tab.Stage(t.Context(), s, "b-1", []connector.Piece{rows(s.Schema, 0, 0, 3)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Commit(t.Context(), rowRange{0, 0, 3}.commit(staged), rowRange{0, 0, 3}.pre); err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Commit(t.Context(), rowRange{0, 3, 6}.commit(staged), rowRange{0, 3, 6}.pre); err == nil {
			t.Error("files were committed twice")
		}
		tab.Discard(t.Context(), staged)
		check(t, mem, 3)
		noOrphans(t, mem)
	})
}

// TestOldFiles: data files that were staged more than half a day ago are not committed, because another engine's vacuum
// may have deleted them.
func TestOldFiles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		tab := open(t, mem)
		s := load(t, tab)
		staged, err := tab.Stage(t.Context(), s, "b-1", []connector.Piece{rows(s.Schema, 0, 0, 3)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(13 * time.Hour)
		_, err = tab.Commit(t.Context(), rowRange{0, 0, 3}.commit(staged), rowRange{0, 0, 3}.pre)
		fenced("vacuum")(t, err)
	})
}
