package model

// doer emits one step. f changes a copy of the state and of member m, -1 for none. x is the claim or offset that the
// step is about, -1 for none; calm is [Step.Calm].
type doer func(what string, m, x int, calm uint8, f func(t *State, y *Member))

// Next implements [Machine].
func (w World) Next(s State, emit func(Step, State)) {
	do := func(what string, m, x int, calm uint8, f func(t *State, y *Member)) {
		t := s
		f(&t, &t.M[max(m, 0)])
		emit(Step{what, int8(m), int8(x), calm}, t)
	}
	for m, x := range s.M {
		w.network(x, m, do)
		w.commit(&s, x, m, do)
		w.membership(&s, x, m, do)
	}
	for i, p := range s.Stray {
		if p.N == 0 {
			continue
		}
		do("a stray PUT is dropped", -1, -1, 0, func(t *State, _ *Member) { t.Stray[i] = Put{Cut: noCut()} })
		do("a stray PUT lands", -1, -1, 1, func(t *State, _ *Member) {
			t.Stray[i] = Put{Cut: noCut()}
			if p.Owner > 0 && t.M[p.Owner-1].N == p.N {
				t.M[p.Owner-1].Twin = 1
			}
			w.put(t, p.N, p.Cut, p.Gone)
		})
	}
	w.others(&s, do)
}

// network emits what can happen to a member's PUT and to the response.
func (w World) network(x Member, m int, do doer) {
	if x.Fly == flying {
		do("PUT is dropped", m, -1, 0, func(_ *State, y *Member) { y.Fly = dead })
		do("PUT arrives", m, -1, 1, func(t *State, y *Member) {
			y.Fly = dead
			if w.put(t, x.N, x.Cut, 0) {
				y.Fly = landed
			}
		})
	}
	if x.Phase != waiting {
		return
	}
	if x.Fly == landed {
		do("200", m, -1, 2, w.win)
	}
	if exists(x.N) { // written by an earlier PUT of this member, or by another writer
		do("412", m, -1, 3, func(t *State, y *Member) {
			if y.Phase = unknown; w.is(LostOn412) {
				w.lose(t, y)
			}
		})
	}
	if w.is(DeniedDecides) && x.Saw404 > 0 {
		do("403 to the repeated PUT: failed", m, -1, 0, w.never)
	}
	do("409, 5xx, reset or timeout", m, -1, 4*flag(x.Fly == dead), func(t *State, y *Member) {
		if y.Phase = unknown; w.is(NextOnUnknown) {
			w.stray(t, y, 0, 0)
			y.N++
			send(t, y)
		}
	})
}

// flag returns 1 for true, 0 for false.
func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// exists reports whether a GET of version n finds its entry.
func exists(n int8) bool { return n == 0 || n == old }

func send(_ *State, y *Member) { y.Phase, y.Fly, y.Last = waiting, flying, 0 }

// commit emits the steps of a member's writer, from sealing a batch to the committed offsets.
func (w World) commit(s *State, x Member, m int, do doer) {
	switch x.Phase {
	case idle:
		w.start(s, x, m, do)
		w.choose(s, x, m, 0, noCut(), do)
	case closed:
		do("precondition, letters durable", m, -1, 6, func(t *State, y *Member) {
			if w.fits(t, y) {
				w.letters(t, y)
				y.Phase = lettered
			}
		})
	case lettered:
		if w.Polls {
			do("polls the log", m, -1, 5, func(_ *State, y *Member) { y.Phase = polling })
			return
		}
		do("precondition, PUT", m, -1, 5, w.pre)
	case polling:
		w.poll(s, x, m, do)
	case ready: // a separate step only in worlds where the member can sleep before it sends
		if x.Stale == 1 && !w.is(AgeCheckedInPRE) {
			w.lookBefore(s, x, m, do)
			return
		}
		do("PUT", m, -1, 4, send)
	case unknown:
		w.readBack(s, x, m, do)
	case waiting: // see network
	case won:
		do("group offsets fail", m, -1, 0, w.settle)
		do("group offsets", m, -1, 1, func(t *State, y *Member) {
			for c := range claims {
				if x.Cut.From[c] != none {
					t.Group[c] = x.Cut.Next[c]
				}
			}
			w.settle(t, y)
		})
	}
	if w.is(Final404First) && x.Saw404 == 1 && x.First == 0 { // the last PUT stays young: Last does not change
		do("20 minutes since the first PUT", m, -1, 0, func(_ *State, y *Member) { y.First = 1 })
	}
	if w.is(Final404Aged) && x.Saw404 == 2 {
		do("the 404 is old: final", m, -1, 3, w.never)
	}
}

// start emits two initial commits for each claim without a txn: one sets the position 0, the other 1. Each also covers
// the other claim if it has the same topic id and no txn. Two offsets suffice to model start earliest and latest, and
// two members that see different ends of the topic.
func (w World) start(s *State, x Member, m int, do doer) {
	for i := range 2 * claims {
		c, o, k := i/2, int8(i%2), noCut()
		if x.From[c] != absent {
			continue
		}
		k.Kind = start
		for d := range claims {
			if d == c || !w.Generations && w.Records[d] != "" && s.Txn[d] == absent {
				k.From[d], k.Next[d] = absent, min(o, w.end(d))
			}
		}
		do([]string{"initial commit, earliest", "initial commit, latest"}[o], m, -1, 7, func(_ *State, y *Member) { y.Phase, y.Cut = lettered, k })
	}
}

// choose emits the sealing of every batch that the member could have. For each claim from number c on, such a batch
// covers none or some of the next records. k has the choices for the claims before c.
func (w World) choose(s *State, x Member, m, c int, k Cut, do doer) {
	if c == claims {
		w.close(x, m, k, do)
		return
	}
	for to := w.end(c); x.From[c] >= 0 && w.current(s, c) && to > x.Pos[c]; to-- {
		k := k
		k.From[c], k.Next[c] = x.From[c], to
		k.Rows[c] = w.offsets(c, x.Pos[c], to, "gf")
		if !w.Hold {
			k.Lets[c] = w.offsets(c, x.Pos[c], to, "p")
		}
		w.choose(s, x, m, c+1, k, do)
		if either := w.offsets(c, x.Pos[c], to, "f"); either != 0 {
			k.Rows[c], k.Lets[c] = k.Rows[c]&^either, k.Lets[c]|either
			w.choose(s, x, m, c+1, k, do)
		}
	}
	w.choose(s, x, m, c+1, k, do) // of a held or released claim, rows, letters and txn are left out
}

// close emits the step that seals the batch k, if k covers any offset. In worlds with the deviations EmptyCutMoves or
// DropRowsKeepTxn it emits the wrong steps of these.
func (w World) close(x Member, m int, k Cut, do doer) {
	follow := func(_ *State, y *Member) { // the open batch begins after this one
		for c := range claims {
			if k.From[c] != none {
				y.From[c], y.Pos[c] = k.Next[c], k.Next[c]
			}
		}
	}
	as := func(what string, x int, calm uint8, k Cut) {
		do(what, m, x, calm, func(t *State, y *Member) {
			if y.Phase, y.Cut = lettered, k; k.Lets != noRows {
				y.Phase = closed
			}
			follow(t, y)
		})
	}
	switch {
	case k.From == nothing:
		return
	case w.is(EmptyCutMoves) && k.Rows == noRows:
		do("batch without rows: not due yet", m, -1, 7, follow)
		return
	}
	as("seal, next offsets", int(max(k.Next[0], 0)*10+max(k.Next[1], 0)), 8, k)
	for c := range claims {
		if w.is(DropRowsKeepTxn) && k.From[c] != none {
			k := k
			k.Rows[c], k.Lets[c] = 0, 0
			as("seal without the rows of released claim", c, 0, k)
		}
	}
}

// letters makes the batch's letters durable; with LettersLate only once it is committed.
func (w World) letters(t *State, y *Member) {
	for c := range claims {
		if !w.is(LettersLate) || y.Phase == won {
			t.Letters[c] |= y.Cut.Lets[c] // a repeated letter counts once
		}
	}
}

// fits is the precondition: it reports whether the log's newest prefix has the table id and the txns from which the
// batch started. If not, it fences the member.
func (w World) fits(t *State, y *Member) bool {
	fit := w.is(PreWithoutTable) || y.Table == t.Table
	for c := range claims {
		if y.Cut.From[c] == none {
			continue
		}
		moved := t.Txn[c] != y.Cut.From[c] && !w.is(NoCAS)
		if y.Cut.Kind == start && !w.is(StartUnchecked|StartCheckedOnce) {
			moved = w.history(t, c)
		}
		if moved && w.is(DropFencedRows) {
			y.Cut.Rows[c], moved = 0, false
		}
		fit = fit && !moved
	}
	if !fit {
		w.fence(t, y, 1)
	}
	return fit
}

// pre checks the precondition on the newest prefix, then sends the PUT of the version after it. In worlds with Days the
// PUT is a step of its own.
func (w World) pre(t *State, y *Member) {
	if !w.fits(t, y) {
		return
	}
	w.forget(y, 1)
	if y.Phase, y.N = ready, 1; w.Days == 0 {
		send(t, y)
	}
}

// poll emits one GET of version N. The first 404 ends the poll; the precondition is then checked on the versions before
// N.
func (w World) poll(s *State, x Member, m int, do doer) {
	if exists(x.N) {
		do("GET of the poll: there", m, -1, 5, func(_ *State, y *Member) { y.N, y.Stale, y.Checkpoint = y.N+1, 0, 0 })
		return
	}
	do("GET of the poll: 404", m, -1, 5, func(t *State, y *Member) {
		// If the log was cleaned up beyond the member's versions, the precondition may see a prefix with any
		// content. The worst case is that it passes.
		if y.N == 1 && !w.fits(t, y) {
			return
		}
		if y.Phase = ready; w.is(NotFoundIsYoung) {
			y.Stale = 0
		}
	})
}

// load reads the newest snapshot by listing the log. If only the checkpoint is left of it, the member remembers that.
func (w World) load(t *State, y *Member) { y.N, y.Stale, y.Checkpoint = 1, 0, t.Bare }

// forget clears all state about the PUT of version N. With Polls the member's next poll requests version next.
func (w World) forget(y *Member, next int8) {
	y.N, y.Fly, y.First, y.Last, y.Saw404, y.Twin = 0, quiet, 0, 0, 0, 0
	if w.Polls {
		y.N = next
	} else {
		y.Stale = 0
	}
}

// behind returns the version that the next poll requests: the one after n if n exists, otherwise n.
func behind(n int8) int8 {
	if exists(n) {
		return n + 1
	}
	return n
}

// lookBefore emits the HEAD of the version N-1. If the version exists, a snapshot that was old counts as young again.
// If it is gone, the batch is dropped: N may be gone too, and a PUT could succeed for a version that was written long
// ago.
func (w World) lookBefore(s *State, x Member, m int, do doer) {
	tolerated := w.is(HeadForgotten) || w.is(CheckpointIsYoung) && x.Checkpoint == 1
	if (x.N == gone || x.N == 1 && s.Bare == 1) && !tolerated {
		do("HEAD N-1: gone, batch dropped, files kept", m, -1, 3, func(t *State, y *Member) { w.fence(t, y, 0) })
		return
	}
	do("HEAD N-1: there", m, -1, 3, func(_ *State, y *Member) { y.Stale = 0 })
}

// readBack emits the GET of N that resolves an unknown outcome. If N is absent, the PUT is repeated.
func (w World) readBack(s *State, x Member, m int, do doer) {
	final := x.Last == 1 && w.is(Final404Last|Final404Cleaned) || x.First == 1 && w.is(Final404First)
	switch {
	case exists(x.N) && (x.Fly == landed || x.Twin == 1 && w.is(AnyOwnID)):
		do("GET: ours", m, -1, 3, w.win)
	case exists(x.N):
		do("GET: another's", m, -1, 3, w.lose)
	case x.Stale == 1 && !w.is(AgeCheckedInPRE) && (!final || !w.is(Final404Cleaned)):
		w.lookBefore(s, x, m, do)
	case final:
		do("GET: 404, final", m, -1, 3, w.never)
	default:
		do("GET: 404, PUT again", m, -1, 3, func(t *State, y *Member) {
			y.Saw404 = max(y.Saw404, flag(w.Ticks > 0))
			if w.is(NewIDOn404) {
				w.stray(t, y, 0, uint8(m)+1)
			}
			send(t, y)
		})
	}
}

// win is the step after the member learned that version N is its commit.
func (w World) win(t *State, y *Member) {
	if y.Fly != landed {
		t.Err = notWon
	}
	if y.Phase = won; !w.Group && !w.is(LettersLate) {
		w.settle(t, y)
	}
}

// settle ends a successful commit. After an initial commit the member reads its claims from the positions that the
// commit has set.
func (w World) settle(t *State, y *Member) {
	w.letters(t, y)
	for c := range claims {
		if y.Cut.Kind == start && y.Cut.From[c] != none && y.From[c] == absent {
			y.From[c], y.Pos[c] = y.Cut.Next[c], y.Cut.Next[c]
		}
	}
	w.forget(y, behind(y.N))
	y.Phase, y.Cut = idle, noCut()
}

// lose is the step after the member learned that version N is another writer's: it checks the precondition again on
// the newest prefix, with the same data files.
func (w World) lose(t *State, y *Member) {
	if y.Fly == landed || y.Twin == 1 || y.Fly == flying && y.N > 0 {
		t.Err = notLost
	}
	w.forget(y, behind(y.N))
	y.Phase = lettered
}

// never is the step after the member decided that no PUT of this batch has taken effect or will: it deletes the files,
// and its claims resume.
func (w World) never(t *State, y *Member) {
	if y.Fly == landed || y.Fly == flying {
		t.Err = notLost
	}
	w.fence(t, y, 1)
}

// fence drops the sealed and the open batch. Every claim resumes from the table. deleteFiles 1 deletes the data files
// of the sealed batch.
func (w World) fence(t *State, y *Member, deleteFiles uint8) {
	w.abandon(t, y, deleteFiles, 0)
	for c := range claims {
		switch {
		case y.From[c] == none:
		case w.is(FenceKeepsChained) && y.From[c] >= 0:
			y.From[c] = t.Txn[c]
		default:
			w.resume(t, y, c)
		}
	}
}

// abandon gives up the commit in flight, whose PUT may still take effect. deleteFiles 1 deletes its data files; owner
// is [Put.Owner].
func (w World) abandon(t *State, y *Member, deleteFiles, owner uint8) {
	if y.Cut.Rows == noRows {
		deleteFiles = 0
	}
	if deleteFiles == 1 && y.Fly == landed {
		t.Err = fileGone
	}
	w.stray(t, y, deleteFiles, owner)
	w.forget(y, y.N)
	y.Phase, y.Cut = idle, noCut()
}

// stray moves the member's PUT, if it is in flight, to State.Stray: its sender no longer waits for the response.
func (w World) stray(t *State, y *Member, files, owner uint8) {
	if y.Fly == flying && y.N > 0 {
		w.release(t, Put{N: y.N, Cut: y.Cut, Gone: files, Owner: owner})
	}
}

// release adds a PUT to State.Stray. If State.Stray is full, the PUT never takes effect.
func (w World) release(t *State, p Put) {
	for i := range max(1, w.Strays) {
		if t.Stray[i].N == 0 {
			t.Stray[i] = p
			return
		}
	}
}

// resume sets the member's position of a claim from the table's txn, or releases the claim if it is held.
func (w World) resume(t *State, y *Member, c int) {
	if y.From[c], y.Pos[c] = none, none; w.held(t, y, c) {
		return
	}
	y.Table, y.From[c], y.Pos[c] = t.Table, t.Txn[c], t.Txn[c]
	if w.Polls && y.Phase < polling {
		w.load(t, y)
	}
	if w.is(GroupOverTxn) && t.Group[c] != absent && t.Txn[c] != absent {
		y.Pos[c] = t.Group[c]
	}
}
