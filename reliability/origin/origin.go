// Package origin signs and reads the header of a record that a replay of dead letters has produced to its topic again.
// The header names the dead letter and the intent of the replay, so that members accept each dead letter at most once.
package origin

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"sluice/idempotency"
)

// Header is the name of the header.
const Header = "sluice-origin"

// Origin says which dead letter a record comes from, and which intent of the operations log replays it.
type Origin struct {
	Pipeline string
	TableID  string
	Record   idempotency.Coordinates // of the dead letter's record
	Intent   int64                   // seq of the intent
	// Number is the place of the dead letter among those of its partition in the intent, from 1 on.
	Number int64
	// Replays is how often the record was replayed through its topic, this time included.
	Replays int64
}

// Keys sign and verify headers. The zero value has none.
type Keys struct{ all [][]byte }

const (
	// MinKeyBytes is the smallest length of a key. A shorter one could be guessed.
	MinKeyBytes = 32
	// MaxKeys is the largest number of keys, because a forged header costs an HMAC for each of them.
	MaxKeys = 8

	version   = "v1"
	textParts = 7 // of a header without its MAC
	// maxHeader is the largest length of a header: names of Kafka and of pipelines have at most 249 bytes, and escaping
	// takes three for one.
	maxHeader = 4096
)

// ParseKeys reads keys, one a line. The first one signs; all of them verify, so that a key can be replaced: add the new
// key as the last line everywhere, then move it to the top, then remove the old one.
func ParseKeys(text []byte) (Keys, error) {
	var k Keys
	for line := range bytes.Lines(text) {
		key := bytes.TrimSpace(line)
		switch {
		case len(key) == 0:
			continue
		case len(key) < MinKeyBytes:
			return Keys{}, fmt.Errorf("key %d has %d bytes, a key has at least %d: make one with openssl rand -hex 32", len(k.all)+1, len(key), MinKeyBytes)
		case len(k.all) == MaxKeys:
			return Keys{}, fmt.Errorf("there are more than %d keys: remove those that are no longer needed", MaxKeys)
		}
		k.all = append(k.all, bytes.Clone(key))
	}
	if len(k.all) == 0 {
		return Keys{}, errors.New("there is no key: write one a line, such as the output of openssl rand -hex 32")
	}
	return k, nil
}

// Len returns the number of keys.
func (k Keys) Len() int { return len(k.all) }

// Equal reports whether both have the same keys in the same order.
func (k Keys) Equal(o Keys) bool {
	if len(k.all) != len(o.all) {
		return false
	}
	for i := range k.all {
		if !hmac.Equal(k.all[i], o.all[i]) {
			return false
		}
	}
	return true
}

// ErrForged means that none of the keys signed the header for this record, or that it is no header of this version.
var ErrForged = errors.New("the origin is not signed by a key of this pipeline")

// Sign returns the value of the header for a record with this key and value. Without keys it returns nil.
func (k Keys) Sign(o Origin, key, value []byte) []byte {
	if len(k.all) == 0 {
		return nil
	}
	text := o.text()
	return append(append(text, ' '), base64.RawURLEncoding.EncodeToString(mac(k.all[0], text, key, value))...)
}

// Verify reads the header of a record with this key and value. The error is [ErrForged].
func (k Keys) Verify(header, key, value []byte) (Origin, error) {
	end := bytes.LastIndexByte(header, ' ')
	if end < 0 || len(header) > maxHeader {
		return Origin{}, ErrForged
	}
	var signed [sha256.Size]byte
	if encoded := header[end+1:]; len(encoded) != base64.RawURLEncoding.EncodedLen(len(signed)) {
		return Origin{}, ErrForged
	} else if _, err := base64.RawURLEncoding.Strict().Decode(signed[:], encoded); err != nil {
		return Origin{}, ErrForged
	}
	genuine := false
	for _, secret := range k.all { // all of them, so that the duration does not show which key it was
		genuine = hmac.Equal(mac(secret, header[:end], key, value), signed[:]) || genuine
	}
	if !genuine {
		return Origin{}, ErrForged
	}
	o, err := parse(string(header[:end]))
	if err != nil {
		return Origin{}, ErrForged
	}
	return o, nil
}

// mac returns the HMAC-SHA256 of the header's text, and of the record's key and value, each after its length.
func mac(secret, text, key, value []byte) []byte {
	h := hmac.New(sha256.New, secret)
	var length [8]byte
	for _, part := range [][]byte{text, key, value} {
		size := int64(len(part))
		if part == nil {
			size = -1
		}
		binary.BigEndian.PutUint64(length[:], uint64(size))
		h.Write(length[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

// text returns the header without its MAC: parts with one space between two of them.
func (o Origin) text() []byte {
	return fmt.Appendf(nil, "%s %s %s %d %d %d %d", version, o.Record.AppID(o.Pipeline), url.QueryEscape(o.TableID),
		o.Record.Offset, o.Intent, o.Number, o.Replays)
}

// parse reads what text returns.
func parse(text string) (o Origin, err error) {
	parts := strings.Split(text, " ")
	if len(parts) != textParts || parts[0] != version {
		return Origin{}, errors.New("another version")
	}
	id, err := idempotency.ParseAppID(parts[1])
	if err != nil || id.TableID != "" {
		return Origin{}, errors.Join(errors.New("no partition"), err)
	}
	o.Pipeline, o.Record.Partition = id.Pipeline, id.Partition
	if o.TableID, err = url.QueryUnescape(parts[2]); err != nil {
		return Origin{}, fmt.Errorf("table id: %w", err)
	}
	for i, to := range []*int64{&o.Record.Offset, &o.Intent, &o.Number, &o.Replays} {
		if *to, err = strconv.ParseInt(parts[3+i], 10, 64); err != nil || *to < min(int64(i), 1) {
			return Origin{}, errors.Join(fmt.Errorf("%q is out of range", parts[3+i]), err)
		}
	}
	if o.Number > MaxNumber || o.Intent > MaxIntent || string(o.text()) != text {
		return Origin{}, errors.New("not as Sign writes it")
	}
	return o, nil
}

// A table has one txn for each partition that was replayed through its topic: its newest intent, and how many of that
// intent's origins it has accepted. Both are in the version of the txn.
const (
	numberBits = 16
	// MaxNumber is the largest number of dead letters of one partition in an intent.
	MaxNumber = 1<<numberBits - 1
	// MaxIntent is the largest seq of an intent.
	MaxIntent = 1<<(63-numberBits) - 1
)

// Txn returns the version of the txn for an intent and the number of its accepted origins.
func Txn(intent, accepted int64) int64 { return intent<<numberBits | accepted }

// Accepted returns what Txn has put into the version of a txn: the intent, and the number of its accepted origins.
// Both are 0 if the version is negative.
func Accepted(version int64) (intent, accepted int64) {
	if version < 0 {
		return 0, 0
	}
	return version >> numberBits, version & MaxNumber
}
