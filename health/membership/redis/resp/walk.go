package resp

import "fmt"

// walker follows replies (RESP2 and RESP3) byte by byte and keeps no values. It accepts less than go-redis does, and
// divides an accepted reply into the same values.
type walker struct {
	state state
	kind  byte // kind of the value whose line is being read: its first byte

	line     int  // number of bytes of the line so far, without its kind
	number   int  // the number on a line that is a length or a count
	negative bool // true if that number is -1
	body     int  // number of bytes of a bulk string that are still to come

	open      [maxDepth]int // number of elements that are still to come, for each aggregate around the next value
	depth     int           // number of aggregates around the next value
	attribute int           // 1 + depth at which an attribute began, until the value after it ends; 0 outside of one
	memory    int           // estimated memory of the reply, in bytes
}

// state is what the walker expects next.
type state byte

const (
	atKind   state = iota // the first byte of a value, which is its kind
	inLine                // a text up to CR
	inNumber              // digits up to CR
	lineEnd               // the LF that ends a line
	inBody                // the bytes of a bulk string
	bodyCR                // the CR after a bulk string
	bodyLF                // the LF after that CR
)

// shape is how a kind of value continues after its first byte.
type shape byte

const (
	none shape = iota
	text
	bulk
	aggregate
)

// shapeOf returns the shape of a kind, and the name of the kind. Parts of streamed values have the shape none: no
// server sends them.
func shapeOf(kind byte) (s shape, name string) {
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(': // a simple string, error, integer, null, double, boolean or big number
		return text, "a line"
	case '$', '!', '=': // a bulk string, bulk error or verbatim string
		return bulk, "a bulk string"
	case '*', '~', '>': // an array, set or push
		return aggregate, "an array"
	case '%':
		return aggregate, "a map"
	case '|':
		return aggregate, "an attribute"
	}
	return none, ""
}

// bytes walks the received bytes. After an error, ErrMalformed or ErrTooLarge, the walker must not be used.
func (w *walker) bytes(p []byte) error {
	for len(p) > 0 {
		if w.state == inBody {
			n := min(w.body, len(p))
			p = p[n:]
			if w.body -= n; w.body == 0 {
				w.state = bodyCR
			}
			continue
		}
		if err := w.next(p[0]); err != nil {
			return err
		}
		p = p[1:]
	}
	return nil
}

// next processes a byte that is not in the body of a bulk string.
func (w *walker) next(b byte) error {
	switch w.state {
	case atKind:
		return w.begin(b)
	case inLine, inNumber:
		if w.line++; w.line > maxLine {
			return fmt.Errorf("%w: a line of more than %d bytes", ErrTooLarge, maxLine)
		}
		switch {
		case b == '\r':
			w.state = lineEnd
		case w.state == inNumber:
			return w.digit(b)
		case b == '\n':
			return fmt.Errorf("%w: LF without CR in a line", ErrMalformed)
		}
		return nil
	case lineEnd:
		if b != '\n' {
			return fmt.Errorf("%w: %q instead of LF after CR", ErrMalformed, b)
		}
		return w.lineOver()
	case bodyCR:
		w.state = bodyLF
		if b != '\r' {
			return fmt.Errorf("%w: %q instead of CR after a bulk string", ErrMalformed, b)
		}
		return nil
	default:
		if b != '\n' {
			return fmt.Errorf("%w: %q instead of LF after a bulk string", ErrMalformed, b)
		}
		w.valueOver()
		return nil
	}
}

// begin processes the first byte of a value.
func (w *walker) begin(kind byte) error {
	s, _ := shapeOf(kind)
	if s == none {
		return fmt.Errorf("%w: %q where a value begins", ErrMalformed, kind)
	}
	if kind == '|' {
		// An attribute must not begin before the value of another attribute has ended: go-redis would divide nested
		// attributes into other values, and would recurse for each attribute that directly follows another.
		if w.attribute > 0 {
			return fmt.Errorf("%w: an attribute within another", ErrMalformed)
		}
		w.attribute = w.depth + 1
	}
	w.kind, w.line, w.number, w.negative, w.state = kind, 0, 0, false, inNumber
	if s == text {
		w.state = inLine
	}
	return nil
}

// takes adds bytes to the estimated memory of the reply. The error is ErrTooLarge if the sum exceeds maxReply.
func (w *walker) takes(bytes int) error {
	if w.memory += bytes; w.memory > maxReply {
		return fmt.Errorf("%w: it would take more than %d MiB", ErrTooLarge, maxReply>>20)
	}
	return nil
}

// digit processes a byte of a length or count.
func (w *walker) digit(b byte) error {
	s, name := shapeOf(w.kind)
	most, unit := maxBulk, "bytes"
	if s == aggregate {
		most, unit = maxElements, "elements"
	}
	switch {
	case b == '-' && w.line == 1 && (w.kind == '$' || w.kind == '*'): // -1 is null in RESP2
		w.negative = true
		return nil
	case b == '?':
		return fmt.Errorf("%w: %s without a length", ErrMalformed, name)
	case b < '0' || b > '9' || w.negative && (w.line != 2 || b != '1'):
		return fmt.Errorf("%w: %q in the length of %s", ErrMalformed, b, name)
	}
	if w.number = w.number*10 + int(b-'0'); w.number > most {
		return fmt.Errorf("%w: %s of more than %d %s", ErrTooLarge, name, most, unit)
	}
	return nil
}

// lineOver handles the end of a line: the value ends with it, or the line was the length of a bulk string or the count
// of an aggregate, whose content follows.
func (w *walker) lineOver() error {
	s, name := shapeOf(w.kind)
	length := w.line - 1 // the line without its CR
	switch {
	case s == text:
		if err := w.takes(length); err != nil {
			return err
		}
		w.valueOver()
		return nil
	case length == 0 || w.negative && length != 2:
		return fmt.Errorf("%w: %s without a length", ErrMalformed, name)
	case w.negative:
		w.valueOver()
		return nil
	case s == bulk:
		if w.body, w.state = w.number, inBody; w.body == 0 {
			w.state = bodyCR
		}
		return w.takes(w.number)
	}
	return w.enter()
}

// enter begins an aggregate with the count that was read: its elements follow.
func (w *walker) enter() error {
	n := w.number
	switch w.kind {
	case '%':
		n *= 2
	case '|':
		n = n*2 + 1 // an attribute has pairs, and is followed by the value that it is about
	}
	if w.depth == maxDepth {
		return fmt.Errorf("%w: values nested more than %d deep", ErrTooLarge, maxDepth)
	}
	if err := w.takes(n * elementWeight); err != nil {
		return err
	}
	if n == 0 {
		w.valueOver()
		return nil
	}
	w.open[w.depth] = n
	w.depth++
	w.state = atKind
	return nil
}

// valueOver handles the end of a value, and of all aggregates whose last element it is. After the outermost value a new
// reply begins.
func (w *walker) valueOver() {
	w.state = atKind
	for w.depth > 0 {
		if w.open[w.depth-1]--; w.open[w.depth-1] > 0 {
			return
		}
		w.depth--
		if w.depth < w.attribute {
			w.attribute = 0
		}
	}
	w.memory = 0
}
