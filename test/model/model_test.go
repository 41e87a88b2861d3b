package model

import (
	"testing"
	"time"
)

// limit is the maximum number of states of one search. A search that reaches it proves nothing, so its test fails.
const limit = 6_000_000

var (
	chained   = World{Records: [2]string{"gpg"}}
	twoClaims = World{Records: [2]string{"g", "pg"}}
	strays    = World{Records: [2]string{"pg"}, Strays: 2}
	fickle    = World{Records: [2]string{"gf"}}
	first     = World{Records: [2]string{"g", "p"}, Fresh: true}
	recreated = World{Records: [2]string{"g", "g"}, Generations: true, Fresh: true, Recreates: 1, Group: true}
	operated  = World{Records: [2]string{"gp"}, Sets: 1, Strays: 2}
	replaced  = World{Records: [2]string{"gg"}, Replaces: 1}
	minutes   = World{Records: [2]string{"gg"}, Ticks: 2}
	asleep    = World{Records: [2]string{"gg"}, Days: 2}
	polled    = World{Records: [2]string{"g"}, Days: 2, Polls: true}
	expired   = World{Records: [2]string{"gg"}, Group: true, Expiries: 2}
	expiring  = World{Records: [2]string{"g", "g"}, Expiries: 1}
	grouped   = World{Records: [2]string{"ggd"}, Group: true}
	poisoned  = World{Records: [2]string{"gpg", "d"}, Hold: true}
)

func search[S comparable](t *testing.T, w Machine[S]) Result {
	t.Helper()
	began := time.Now()
	r := Search(w, limit)
	took := time.Since(began)
	t.Logf("%5.2f s, %.0f states/s: %v", took.Seconds(), float64(r.States)/took.Seconds(), r)
	return r
}

// worlds are configurations of the protocol and of the correct deviation Final404Last. No state of any world may have a
// violation.
var worlds = map[string]World{
	"Chained": chained, "TwoClaims": twoClaims, "Strays": strays, "Fickle": fickle, "First": first, "Recreated": recreated,
	"Operated": operated, "Replaced": replaced, "Minutes": minutes, "Asleep": asleep, "Grouped": grouped, "Poisoned": poisoned,
	"Polled": polled, "Expired": expired,
	"Final404": with(minutes, Final404Last), "Final404Asleep": with(asleep, Final404Last),
}

func with(w World, r Rule) World {
	w.Rule = r
	return w
}

// TestProtocol visits every state of every world and expects no violation.
func TestProtocol(t *testing.T) {
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			if r := search(t, w); !r.Exhausted || r.Bad != "" {
				t.Error("not proved")
			}
		})
	}
}

// mutants are the wrong deviations, each in a world in which the search must find a violation.
var mutants = map[string]struct {
	rule Rule
	in   World
}{
	"Final404Aged":      {Final404Aged, minutes},
	"Final404First":     {Final404First, minutes},
	"Final404Cleaned":   {Final404Cleaned, asleep},
	"PreWithoutTable":   {PreWithoutTable, replaced},
	"TableIDInMemory":   {TableIDInMemory, replaced},
	"StartCheckedOnce":  {StartCheckedOnce, recreated},
	"DropRowsKeepTxn":   {DropRowsKeepTxn, twoClaims},
	"AgeCheckedInPRE":   {AgeCheckedInPRE, asleep},
	"EmptyCutMoves":     {EmptyCutMoves, World{Records: [2]string{"pg"}}},
	"IdleBlind":         {IdleBlind, operated},
	"OnePlace":          {OnePlace, fickle},
	"AnyOwnID":          {AnyOwnID, chained},
	"DeniedDecides":     {DeniedDecides, minutes},
	"HeadForgotten":     {HeadForgotten, asleep},
	"NotFoundIsYoung":   {NotFoundIsYoung, polled},
	"CheckpointIsYoung": {CheckpointIsYoung, polled},
	"StatisticsUnread":  {StatisticsUnread, expiring},
	"SiblingsVouch":     {SiblingsVouch, expiring},
	"NoCAS":             {NoCAS, chained},
	"NextOnUnknown":     {NextOnUnknown, chained},
	"LostOn412":         {LostOn412, chained},
	"NewIDOn404":        {NewIDOn404, chained},
	"DeleteOnUnknown":   {DeleteOnUnknown, chained},
	"FenceKeepsChained": {FenceKeepsChained, chained},
	"GroupOverTxn":      {GroupOverTxn, grouped},
	"LettersLate":       {LettersLate, chained},
	"DropFencedRows":    {DropFencedRows, twoClaims},
	"StartUnchecked":    {StartUnchecked, recreated},
	"PlainPut":          {PlainPut, chained},
	"PoisonPassed":      {PoisonPassed, poisoned},
}

func TestMutants(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			if r := search(t, with(m.in, m.rule)); r.Bad == "" {
				t.Error("not caught")
			}
		})
	}
}
