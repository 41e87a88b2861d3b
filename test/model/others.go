package model

// membership emits the steps that change what member m owns: it may resume and lose any claim, and crash, at any time.
func (w World) membership(s *State, x Member, m int, do doer) {
	for c := range claims {
		resume := func(t *State, y *Member) { w.resume(t, y, c) }
		switch {
		case x.From[c] == none && w.current(s, c) && !w.held(s, &x, c):
			do("resumes claim", m, c, 9, resume)
		case x.From[c] != none && x.Phase == idle && (s.Txn[c] != x.From[c] || s.Table != x.Table) && !w.is(IdleBlind):
			do("sees the position moved, claim", m, c, 9, resume)
		}
	}
	leave := func(_ *State, y *Member) { y.From, y.Pos = nothing, nothing }
	for c := range claims {
		if x.From[c] != none {
			do("loses, commit in flight goes on, claim", m, c, 0, func(_ *State, y *Member) { y.From[c], y.Pos[c] = none, none })
		}
	}
	if x.Phase != idle {
		do("gives up the commit and all claims", m, -1, 0, func(t *State, y *Member) {
			w.abandon(t, y, flag(w.is(DeleteOnUnknown)), flag(w.is(AnyOwnID))*uint8(m+1))
			leave(t, y)
		})
	}
	if x != newMember() {
		do("crashes", m, -1, 0, func(t *State, y *Member) {
			w.stray(t, y, 0, 0)
			*y = newMember()
			for i := range t.Stray { // the next process does not know the txnIds of this one
				t.Stray[i].Owner *= flag(t.Stray[i].Owner != uint8(m)+1)
			}
		})
	}
}

// others emits the steps of other writers, the operator, the topic, and time.
func (w World) others(s *State, do doer) {
	do("another writer appends", -1, -1, 0, func(t *State, _ *Member) { w.other(t, written{cut: noCut()}) })
	if s.Replaces > 0 {
		do("another writer replaces the table", -1, -1, 0, func(t *State, _ *Member) {
			t.Replaces--
			t.Table++
			t.Foreign, t.Once, t.Twice = 1, noRows, noRows
			w.other(t, written{cut: noCut()})
		})
	}
	if s.Recreates > 0 {
		do("topic re-created", -1, -1, 0, func(t *State, _ *Member) { t.Topic++; t.Recreates-- })
	}
	fromZero := func(t *State, k *Cut, c int) {
		k.From[c], k.Next[c] = t.Txn[c], 0
		t.Txn[c], t.Start[c], t.Once[c], t.Twice[c], t.Past[c] = 0, 0, 0, 0, 0
	}
	for c := range claims {
		for o := int8(0); s.Sets > 0 && s.Txn[c] != absent && o <= w.end(c); o++ {
			do("operator: PUT of offsets set to", -1, int(o), 0, func(t *State, _ *Member) {
				t.Sets--
				k := noCut()
				k.Kind, k.From[c], k.Next[c] = set, t.Txn[c], o
				w.release(t, Put{N: 1, Cut: k})
			})
		}
		if w.current(s, c) && w.unknownHistory(s, c) {
			do("operator: offsets start, claim", -1, c, 11, func(t *State, _ *Member) {
				k := noCut()
				fromZero(t, &k, c)
				w.other(t, written{cut: k, operator: true})
			})
		}
	}
	if s.Foreign == 1 {
		do("operator: table accepted, all again", -1, -1, 11, func(t *State, _ *Member) {
			k := noCut()
			for c := range claims {
				if t.Txn[c] != absent {
					fromZero(t, &k, c)
				}
			}
			t.Foreign = 0
			w.other(t, written{cut: k, operator: true, accepts: true})
		})
	}
	if s.Days > 0 { // longer than log entries are kept; a request does not take that long, but a member may sleep that long
		do("a day passes, old log entries go", -1, -1, 0, func(t *State, _ *Member) { w.day(t, old) })
		if w.Polls && s.Bare == 0 {
			do("a day passes, all log entries go, a checkpoint stands", -1, -1, 0, func(t *State, _ *Member) {
				t.Bare = 1
				w.day(t, 0)
			})
		}
	}
	for c := range claims {
		if s.Expiries > 0 && s.Txn[c] != absent && !starting(s) {
			do("the txn expires, another's checkpoint drops it, claim", -1, c, 0, func(t *State, _ *Member) {
				t.Expiries--
				pass(t) // a txn expires after a month
				t.Past[c] |= t.Once[c]
				t.Txn[c], t.Group[c], t.Once[c] = absent, absent, 0
			})
		}
	}
	if s.Ticks > 0 {
		do("20 minutes pass", -1, -1, 0, func(t *State, _ *Member) { t.Ticks--; pass(t) })
	}
}

// day lets a day pass. The log entries of all versions up to the one with the relative number newest are gone. The
// snapshots of members count as old.
func (w World) day(t *State, newest int8) {
	t.Days--
	pass(t)
	for m := range t.M {
		y := &t.M[m]
		if !w.knowsVersion(y) || y.Phase == won && !w.Polls {
			continue
		}
		if y.Stale = 1; y.N != gone && y.N <= newest {
			y.N = gone
		}
	}
}

// starting reports whether a member has found no txn and is about to make the initial commit. The model assumes that
// the member does not sleep for a month at that point.
func starting(s *State) bool {
	for _, y := range s.M {
		if y.Cut.Kind == start || y.From[0] == absent || y.From[1] == absent {
			return true
		}
	}
	return false
}

// pass lets more time pass than a request can take: PUTs in flight never take effect.
func pass(t *State) {
	for i := range t.M {
		t.Stray[i] = Put{Cut: noCut()}
		y := &t.M[i]
		if y.Fly == flying {
			y.Fly = dead
		}
		if y.Phase == waiting || y.Phase == unknown {
			if y.First, y.Last = 1, 1; y.Saw404 == 1 {
				y.Saw404 = 2
			}
		}
	}
}
