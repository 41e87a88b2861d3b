package dial

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/segmentio/kafka-go/protocol"

	"sluice/connector/kafka/frame"
)

// The four requests that opening a connection needs, in versions with non-flexible encoding (KIP-482). Source:
// https://kafka.apache.org/protocol.

// maxResponse bounds a response in bytes. The largest, that to ApiVersions, is below 1 KiB.
const maxResponse = 1 << 20

var (
	be = binary.BigEndian

	errNotKafka  = errors.New("no answer of Kafka's protocol")
	errAlert     = errors.New("a TLS alert")
	errMalformed = errors.New("malformed response")
)

// session sends the requests that the dialer itself needs, on a connection that its user does not have yet or is not
// using at that moment.
type session struct {
	conn     net.Conn
	clientID string
	corr     int32
}

// exchange sends one request, waits, and returns the body of its response.
func (s *session) exchange(key protocol.ApiKey, version int16, body []byte) ([]byte, error) {
	s.corr++
	b := be.AppendUint32(nil, 0)
	b = be.AppendUint16(b, uint16(key))     //nolint:gosec // small
	b = be.AppendUint16(b, uint16(version)) //nolint:gosec // small
	b = be.AppendUint32(b, uint32(s.corr))  //nolint:gosec // as bits
	b = appendString(b, s.clientID)
	b = append(b, body...)
	be.PutUint32(b, uint32(len(b)-4)) //nolint:gosec // small
	_, writeErr := s.conn.Write(b)
	// If writing failed because the broker has closed the connection, a response with the reason may still be there to
	// read.
	answer, err := s.read()
	if _, alert := alertOf(err); err != nil && writeErr != nil && !alert && !errors.Is(err, errAlert) {
		return nil, writeErr
	}
	return answer, err
}

func (s *session) read() ([]byte, error) {
	var h [8]byte
	if n, err := io.ReadFull(s.conn, h[:]); err != nil {
		if n >= 3 && isAlert(h[:]) {
			return nil, errAlert
		}
		return nil, err
	}
	n := int64(int32(be.Uint32(h[:]))) //nolint:gosec // a signed number on the wire
	switch {
	case isAlert(h[:]):
		return nil, errAlert
	case n < 4 || n > maxResponse || be.Uint32(h[4:]) != uint32(s.corr): //nolint:gosec // as bits
		return nil, errNotKafka
	}
	return frame.Read(s.conn, int(n-4))
}

// isAlert reports whether bytes begin a TLS alert (RFC 8446, 5.1), the answer of a TLS listener to plaintext.
func isAlert(h []byte) bool { return h[0] == 0x15 && h[1] == 0x03 }

// versions requests the versions of all APIs. Every broker answers version 0, even before authentication.
func (s *session) versions() (map[protocol.ApiKey][2]int16, error) {
	b, err := s.exchange(protocol.ApiVersions, 0, nil)
	if err != nil {
		return nil, err
	}
	r := reader{b: b}
	if code := r.i16(); code != 0 && r.err == nil {
		return nil, kafkaError(code)
	}
	m := make(map[protocol.ApiKey][2]int16)
	for n := r.i32(); n > 0 && r.err == nil; n-- {
		key := protocol.ApiKey(r.i16())
		m[key] = [2]int16{r.i16(), r.i16()}
	}
	return m, r.err
}

// metadata sends a Metadata request for no topic. A broker that demands authentication closes the connection instead of
// answering it.
func (s *session) metadata() error {
	_, err := s.exchange(protocol.Metadata, 1, be.AppendUint32(nil, 0))
	return err
}

// handshake requests a mechanism (SaslHandshake version 1, which SaslAuthenticate must follow). It returns the error
// code, and the mechanisms that the broker offers.
func (s *session) handshake(m Mechanism) (code int16, offered []string, err error) {
	b, err := s.exchange(protocol.SaslHandshake, 1, appendString(nil, string(m)))
	if err != nil {
		return 0, nil, err
	}
	r := reader{b: b}
	code = r.i16()
	for n := r.i32(); n > 0 && r.err == nil; n-- {
		offered = append(offered, r.str())
	}
	return code, offered, r.err
}

// authenticated is an answer to SaslAuthenticate.
type authenticated struct {
	code     int16
	text     string
	bytes    []byte
	lifetime int64 // lifetime of the session in milliseconds; 0 if it does not end (version 1, KIP-368)
}

func (s *session) authenticate(version int16, auth []byte) (a authenticated, err error) {
	b, err := s.exchange(protocol.SaslAuthenticate, version, append(be.AppendUint32(nil, uint32(len(auth))), auth...)) //nolint:gosec // small
	if err != nil {
		return a, err
	}
	r := reader{b: b}
	a.code, a.text, a.bytes = r.i16(), r.str(), r.bytes()
	if version >= 1 {
		a.lifetime = r.i64()
	}
	return a, r.err
}

func appendString(b []byte, s string) []byte {
	return append(be.AppendUint16(b, uint16(len(s))), s...) //nolint:gosec // names
}

// reader reads the fields of a response one after the other. After an error, err keeps it and every later call returns
// zero.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b) {
		r.err = errMalformed
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

//nolint:gosec // signed numbers on the wire
func (r *reader) i16() int16 {
	if v := r.take(2); v != nil {
		return int16(be.Uint16(v))
	}
	return 0
}

//nolint:gosec // signed numbers on the wire
func (r *reader) i32() int32 {
	if v := r.take(4); v != nil {
		return int32(be.Uint32(v))
	}
	return 0
}

//nolint:gosec // signed numbers on the wire
func (r *reader) i64() int64 {
	if v := r.take(8); v != nil {
		return int64(be.Uint64(v))
	}
	return 0
}

// str reads a string, null as "".
func (r *reader) str() string {
	n := r.i16()
	if n < 0 {
		return ""
	}
	return string(r.take(int(n)))
}

// bytes reads a byte string, null as nil.
func (r *reader) bytes() []byte {
	n := r.i32()
	if n < 0 {
		return nil
	}
	return r.take(int(n))
}

func kafkaError(code int16) error { return fmt.Errorf("error code %d", code) }
