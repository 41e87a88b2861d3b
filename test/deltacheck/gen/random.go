package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// random makes schemas and rows.
type random struct {
	*rand.Rand
	kinds []kind // those that the product writes
	maps  bool   // true if the product writes maps
}

// names are the names that columns have besides plain ones: allowed by the protocol without column mapping, and each a
// risk for an engine that quotes or splits names.
func names() []string {
	return []string{
		"a.b", "x-y", "naïve", "日本", "select", "%41", "it's", `q"uote`, "back`tick", "Ünï", "1st", "$", "new\u00a0space", "_", "a/b", "😀",
		strings.Repeat("long", 63) + "lon", // 255 bytes: a longer one gets another column name
	}
}

func (r *random) columns() []column {
	list := make([]column, 1+r.IntN(6))
	hostile := names()
	r.Shuffle(len(hostile), func(i, j int) { hostile[i], hostile[j] = hostile[j], hostile[i] })
	for i := range list {
		list[i] = column{name: fmt.Sprint("c", i), typ: r.typ([]int{2, 2, 2, 5}[r.IntN(4)]), required: r.IntN(6) == 0}
		if r.IntN(5) == 0 {
			list[i].name = hostile[i]
		}
	}
	return list
}

func (r *random) typ(depth int) typ {
	k := &r.kinds[r.IntN(len(r.kinds))]
	if strings.HasPrefix(k.name, "decimal") && r.IntN(2) == 0 {
		precision := 1 + r.IntN(38)
		other := decimals(precision, r.IntN(precision+1))
		k = &other
	}
	if depth == 0 || r.IntN(4) > 0 {
		return typ{kind: k}
	}
	switch r.IntN(3) {
	case 0:
		element := r.typ(depth - 1)
		return typ{element: &element}
	case 1:
		if !r.maps {
			break
		}
		element := r.typ(depth - 1)
		key := typ{kind: &r.kinds[0]}
		return typ{key: &key, element: &element}
	}
	fields := make([]column, 1+r.IntN(3))
	for i := range fields {
		fields[i] = col(fmt.Sprint("f", i), r.typ(depth-1))
	}
	return typ{fields: fields}
}

// habit is how the values of one column are spread.
type habit struct {
	nulls    float64
	special  float64
	distinct int // the number of different values, 0 for any
	pool     []any
	plain    bool // true if each value must be one that JSON can express
}

func (r *random) habit(plain bool) *habit {
	return &habit{
		nulls: []float64{0, 0.1, 0.1, 0.5, 1}[r.IntN(5)], special: []float64{0, 0.3, 1}[r.IntN(3)], distinct: []int{0, 0, 1, 3}[r.IntN(4)],
		plain: plain,
	}
}

func (r *random) column(c column, h *habit) any {
	if !c.required && r.Float64() < h.nulls {
		return nil
	}
	if h.distinct > 0 && len(h.pool) == h.distinct {
		return h.pool[r.IntN(len(h.pool))]
	}
	v := r.value(c.typ, h)
	h.pool = append(h.pool, v)
	return v
}

func (r *random) value(t typ, h *habit) any {
	inner := func(t typ) any {
		if r.IntN(6) == 0 {
			return nil
		}
		return r.value(t, h)
	}
	switch {
	case t.kind != nil:
		for {
			v := t.kind.random(r.Rand)
			if r.Float64() < h.special {
				v = t.kind.special[r.IntN(len(t.kind.special))]
			}
			if _, ok := t.kind.text(v); ok || !h.plain {
				return v
			}
		}
	case t.key != nil:
		m, seen := pairs{}, map[string]bool{}
		for range r.IntN(4) {
			key := r.value(*t.key, h)
			if name, _ := text(key); !seen[name] {
				seen[name] = true
				m = append(m, [2]any{key, inner(*t.element)})
			}
		}
		return m
	case t.element != nil:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = inner(*t.element)
		}
		return list
	}
	list := make([]any, len(t.fields))
	for i, f := range t.fields {
		list[i] = inner(f.typ)
	}
	return list
}
