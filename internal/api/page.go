package api

import (
	"encoding/base64"
	"net/url"
	"sort"
	"strconv"
	"strings"
)

// The number of items in a page.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

func urlQuery(raw string) (url.Values, error) { return url.ParseQuery(raw) }

// limit returns the number of items that the client wants in a page.
func (r *request) limit() (int, error) {
	return r.number("limit", defaultLimit, 1, maxLimit)
}

// after returns the key of the last item of the page before, "" for the first page. It comes from the cursor, which
// also names the list; clients cannot read it. Items that are added or removed between two requests do not move others
// to another page.
func (r *request) after() (string, error) {
	text := r.URL.Query().Get("cursor")
	if text == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	key, ok := strings.CutPrefix(string(b), r.scope())
	if err != nil || !ok {
		return "", noCursor()
	}
	return key, nil
}

func noCursor() *problem {
	return newProblem(codeCursor, "the cursor is not one of this list: begin without a cursor")
}

// scope returns the first part of the cursors of a list: the path of its route and its topic. A cursor that begins
// otherwise belongs to another list and is refused.
func (r *request) scope() string { return r.route.path + "\n" + r.URL.Query().Get("topic") + "\n" }

func (r *request) cursor(key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(r.scope() + key))
}

// pageOf returns the items of a page and the cursor of the next one, "" at the end. key orders the items.
func pageOf[T any](r *request, all []T, key func(T) string) (page []T, next string, err error) {
	limit, err := r.limit()
	if err != nil {
		return nil, "", err
	}
	after, err := r.after()
	if err != nil {
		return nil, "", err
	}
	sort.SliceStable(all, func(i, j int) bool { return key(all[i]) < key(all[j]) })
	from := 0
	if after != "" {
		from = sort.Search(len(all), func(i int) bool { return key(all[i]) > after })
	}
	to := min(from+limit, len(all))
	if to < len(all) {
		next = r.cursor(key(all[to-1]))
	}
	page = append([]T{}, all[from:to]...)
	return page, next, nil
}

// placeKey orders a whole pipeline before topics, a topic before its partitions, and partitions by number.
func placeKey(topic string, partition int32, rest string) string {
	return topic + "\x00" + leftPad(int64(partition)+1) + "\x00" + rest
}

// leftPad formats a number so that texts sort as numbers do.
func leftPad(n int64) string {
	const digits = 20
	text := strconv.FormatInt(n, 10)
	return strings.Repeat("0", digits-len(text)) + text
}
