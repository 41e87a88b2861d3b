package objstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"sluice/classify"
)

const (
	selfTestPrefix = "_sluice/selftest/"
	selfTestRacers = 8
	cleanUpTimeout = 5 * time.Second
)

// SelfTest checks the promises of a store that commits rely on: of several puts of one fresh key with IfAbsent
// exactly one takes effect, a later one is refused, an object can be read and listed right after its put, and a list
// begins after its start key. It returns [ErrUnsafe], class Fatal, with the store's behavior and what to do about it.
// Any other error says nothing about safety and keeps its class: a store that is down is Transient, one that denies is
// Fatal with [ErrRefused].
// The test leaves nothing behind, unless the store denies deletes: then an object of a few bytes below
// _sluice/selftest/ stays.
//
// It cannot detect everything: a store passes that is exclusive only within one server, or only while no component
// fails.
func SelfTest(ctx context.Context, s Store) (err error) {
	key := selfTestPrefix + rand.Text()
	defer func() {
		if e := cleanUp(ctx, s, key); err == nil { // if the test itself failed, its error is returned, not that of the cleanup
			err = e
		}
	}()
	winner, err := race(ctx, s, key)
	if err != nil {
		return err
	}
	switch got, err := readAll(ctx, s, key); {
	case errors.Is(err, ErrNotFound):
		return unsafe("an object that was just put is not found; the store or a cache before it is not read-after-write consistent")
	case err != nil:
		return err
	case !bytes.Equal(got, selfTestBody(winner)):
		return unsafe("of %d puts of one key, number %d was reported as done, but the object holds other content: %.40q",
			selfTestRacers, winner, got)
	}
	switch err := s.Put(ctx, key, bytes.NewReader(selfTestBody(selfTestRacers)), IfAbsent); {
	case err == nil:
		return unsafe("a second put of an existing key with If-None-Match: * was accepted: the store ignores the condition")
	case !errors.Is(err, ErrExists):
		return fmt.Errorf("self-test: %w", err)
	}
	if got, err := readAll(ctx, s, key); err != nil {
		return err
	} else if !bytes.Equal(got, selfTestBody(winner)) {
		return unsafe("a put that was answered with \"exists\" changed the object all the same")
	}
	return listed(ctx, s, key)
}

func unsafe(format string, args ...any) error {
	return classify.Mark(fmt.Errorf("%w: %s. Commits would overwrite each other. Use a store with conditional puts "+
		"(AWS S3, MinIO, a local file system with hard links) and no proxy that drops the If-None-Match header", ErrUnsafe,
		fmt.Sprintf(format, args...)), classify.Fatal)
}

func selfTestBody(racer int) []byte { return fmt.Appendf(nil, "sluice self-test, racer %d\n", racer) }

// race lets several goroutines put one fresh key, and returns the number of the one whose put succeeded. The error is
// [ErrUnsafe] if several puts succeeded, or if all of them found that the key exists.
func race(ctx context.Context, s Store, key string) (winner int, err error) {
	answers := make([]error, selfTestRacers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			<-start
			answers[i] = s.Put(ctx, key, bytes.NewReader(selfTestBody(i)), IfAbsent)
		})
	}
	close(start)
	wg.Wait()
	winner = -1
	var unclear []error
	for i, err := range answers {
		switch {
		case err == nil && winner >= 0:
			return 0, unsafe("of %d puts of one fresh key with If-None-Match: * at least two were accepted", selfTestRacers)
		case err == nil:
			winner = i
		case errors.Is(err, ErrUnsafe):
			return 0, err
		case !errors.Is(err, ErrExists):
			unclear = append(unclear, err)
		}
	}
	switch {
	case winner >= 0:
		return winner, nil
	case unclear != nil: // no put is known to have succeeded, but one whose response was lost may have
		return 0, fmt.Errorf("self-test: %w", distinct(unclear))
	}
	return 0, unsafe("all of %d puts of one fresh key with If-None-Match: * were answered with \"exists\"", selfTestRacers)
}

func readAll(ctx context.Context, s Store, key string) ([]byte, error) {
	r, err := s.Get(ctx, key, 0, -1)
	if err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	b, err := io.ReadAll(r)
	if e := r.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	return b, nil
}

// listed checks lists with a prefix and a start key, as log replay makes them: a start key before key must yield
// exactly the object just put, and key itself as the start key must yield nothing. Any other list is [ErrUnsafe].
func listed(ctx context.Context, s Store, key string) error {
	list := func(after string) (found []string, err error) {
		for i, err := range s.List(ctx, key[:len(key)-1], after) {
			if err != nil {
				return nil, fmt.Errorf("self-test: %w", err)
			}
			found = append(found, i.Key)
		}
		return found, nil
	}
	text := func(found []string) string { return oneLine(fmt.Sprintf("%q", found), maxWhat/4) }
	switch found, err := list(strings.TrimSuffix(selfTestPrefix, "/")); {
	case err != nil:
		return err
	case len(found) != 1 || found[0] != key:
		return unsafe("an object that was just put is not listed (listed: %s)", text(found))
	}
	switch found, err := list(key); {
	case err != nil:
		return err
	case len(found) != 0:
		return unsafe("a list that must begin after its start key does not (listed: %s): the store ignores start-after", text(found))
	}
	return nil
}

// cleanUp deletes the test object. A store that denies the delete passes: a writer need not have the right to delete.
func cleanUp(ctx context.Context, s Store, key string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	err := s.Delete(ctx, key)
	if errors.Is(err, ErrRefused) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	return nil
}
