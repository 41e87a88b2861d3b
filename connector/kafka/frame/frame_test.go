package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	_ "github.com/segmentio/kafka-go/protocol/apiversions"
	_ "github.com/segmentio/kafka-go/protocol/describeconfigs"
	_ "github.com/segmentio/kafka-go/protocol/describegroups"
	_ "github.com/segmentio/kafka-go/protocol/findcoordinator"
	_ "github.com/segmentio/kafka-go/protocol/heartbeat"
	_ "github.com/segmentio/kafka-go/protocol/joingroup"
	_ "github.com/segmentio/kafka-go/protocol/leavegroup"
	_ "github.com/segmentio/kafka-go/protocol/metadata"
	_ "github.com/segmentio/kafka-go/protocol/offsetcommit"
	_ "github.com/segmentio/kafka-go/protocol/offsetfetch"
	_ "github.com/segmentio/kafka-go/protocol/syncgroup"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ofConn has the APIs whose responses kafka-go decodes in its type Conn, with unexported types that this test cannot
// call.
var ofConn = map[int16]bool{apiJoinGroup: true, apiHeartbeat: true, apiSyncGroup: true}

// api is one version of an API whose responses Check knows.
type api struct{ key, version int16 }

func (a api) String() string { return fmt.Sprintf("%v v%d", protocol.ApiKey(a.key), a.version) }

// apis returns every API and version that Check knows.
func apis() (all []api) {
	for key := range int16(100) {
		for v := int16(0); Checks(key, v); v++ {
			all = append(all, api{key, v})
		}
	}
	return all
}

// body returns a response of this API, encoded by franz-go, with n elements in each array.
func (a api) body(n int) []byte {
	resp := kmsg.ResponseForKey(a.key)
	resp.SetVersion(a.version)
	fill(reflect.ValueOf(resp).Elem(), n)
	resp.SetVersion(a.version)
	switch r := resp.(type) {
	case *kmsg.JoinGroupResponse:
		meta := kmsg.NewConsumerMemberMetadata()
		meta.Topics, meta.UserData = []string{"orders", "bills"}, []byte("data")
		for i := range r.Members {
			r.Members[i].ProtocolMetadata = meta.AppendTo(nil)
		}
	case *kmsg.SyncGroupResponse:
		r.MemberAssignment = assignment()
	}
	b := resp.AppendTo(nil)
	if resp.IsFlexible() {
		b = append([]byte{0}, b...) // tags of the header
	}
	return b
}

func assignment() []byte {
	a := kmsg.NewConsumerMemberAssignment()
	topic := kmsg.NewConsumerMemberAssignmentTopic()
	topic.Topic, topic.Partitions = "orders", []int32{0, 1, 2}
	a.Topics, a.UserData = append(a.Topics, topic), []byte("data")
	return a.AppendTo(nil)
}

// fill sets all fields of a response to values that are not zero, and arrays to n elements.
func fill(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() && v.Type().Field(i).Name != "UnknownTags" {
				fill(f, n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(v.Index(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		v.SetString("text")
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	default:
	}
}

// decode decodes a response with kafka-go's Transport.
func (a api) decode(body []byte) error {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	b = append(b, 0, 0, 0, 1)
	_, _, err := protocol.ReadResponse(bytes.NewReader(append(b, body...)), protocol.ApiKey(a.key), a.version)
	return err
}

// allocated returns the bytes that fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestCheck_AcceptsBrokers: Check accepts responses as brokers send them, in each version, and ends at the same byte as
// kafka-go's decoder.
func TestCheck_AcceptsBrokers(t *testing.T) {
	for _, a := range apis() {
		for _, n := range []int{0, 1, 3} {
			body := a.body(n)
			if err := Check(a.key, a.version, body); err != nil {
				t.Errorf("%v with %d elements: %v", a, n, err)
			}
			if err := Check(a.key, a.version, append(body, 0)); err != nil {
				t.Errorf("%v with a byte behind it: %v", a, err)
			}
			if err := a.decode(body); err != nil && !ofConn[a.key] {
				t.Errorf("kafka-go cannot decode %v with %d elements: %v", a, n, err)
			}
		}
	}
}

// TestCheck_RefusesShortResponses: Check refuses every proper prefix of a response, and allocates next to nothing
// meanwhile.
func TestCheck_RefusesShortResponses(t *testing.T) {
	for _, a := range apis() {
		body := a.body(2)
		for n := range body {
			if err := Check(a.key, a.version, body[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%v of %d bytes instead of %d: %v", a, n, len(body), err)
			}
		}
	}
}

// TestCheck_RefusesCounts: wherever four or two bytes of a response become an absurd number, either the response is
// refused or kafka-go decodes it without an allocation beyond the bound.
func TestCheck_RefusesCounts(t *testing.T) {
	refused := 0
	for _, a := range apis() {
		body := a.body(2)
		for at := range body {
			for _, number := range []string{"\x7f\xff\xff\xff", "\xff\xff\xff\xfe", "\x80\x00\x00\x00", "\x7f\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
				hostile := bytes.Clone(body)
				copy(hostile[at:], number)
				if Check(a.key, a.version, hostile) != nil {
					refused++
					continue
				}
				if ofConn[a.key] {
					continue
				}
				if n := allocated(func() { _ = a.decode(hostile) }); n > maxDecoded {
					t.Errorf("%v with %x at %d: %d bytes allocated", a, number, at, n)
				}
			}
		}
	}
	if refused < 1000 {
		t.Errorf("only %d responses were refused", refused)
	}
}

// TestCheck_BoundsMemory: a response of at most MaxSize, with true counts, may take many times its size in memory.
// Check refuses it if that is more than maxDecoded. While kafka-go decodes an accepted response, it allocates no more
// than the limit.
func TestCheck_BoundsMemory(t *testing.T) {
	topics := func(n int) []byte { // Metadata v1 with topics of empty names
		b := make([]byte, 4+4+4+n*9)
		binary.BigEndian.PutUint32(b[8:], uint32(n))
		return b
	}
	most := maxDecoded / 768
	if err := Check(apiMetadata, 1, topics(most)); err != nil {
		t.Errorf("%d topics: %v", most, err)
	}
	if n := allocated(func() { _ = api{apiMetadata, 1}.decode(topics(most)) }); n > maxDecoded {
		t.Errorf("%d topics: %d bytes allocated", most, n)
	}
	if err := Check(apiMetadata, 1, topics(MaxSize/9)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d topics: %v", MaxSize/9, err)
	}
	hostile := make([]byte, MaxSize)
	for _, a := range apis() {
		if Checks(a.key, a.version+1) {
			continue
		}
		for at := range 32 { // a count of MaxSize/16 at some place, as of an array of empty elements
			binary.BigEndian.PutUint32(hostile[at:], MaxSize/16)
			if Check(a.key, a.version, hostile) == nil && !ofConn[a.key] {
				if n := allocated(func() { _ = a.decode(hostile) }); n > maxDecoded+MaxSize {
					t.Errorf("%v with an array at %d: %d bytes allocated", a, at, n)
				}
			}
			binary.BigEndian.PutUint32(hostile[at:], 0)
		}
	}
}

// TestCheck_Assignment: Check accepts an assignment as the leader of a group writes it, an empty one and a null one. It
// refuses an assignment that ends early, or that has an absurd count, by which kafka-go would size a map.
func TestCheck_Assignment(t *testing.T) {
	response := func(inner []byte) []byte {
		b := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(len(inner)))
		return append(b, inner...)
	}
	absurd := bytes.Clone(assignment())
	copy(absurd[2:], "\x7f\xff\xff\xff")
	for _, tt := range []struct {
		name  string
		inner []byte
		want  error
	}{
		{"as a leader writes it", assignment(), nil},
		{"none", nil, nil},
		{"absurd count of topics", absurd, ErrMalformed},
		{"ends early", assignment()[:9], ErrMalformed},
	} {
		if err := Check(apiSyncGroup, 0, response(tt.inner)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if err := Check(apiSyncGroup, 0, []byte("\x00\x00\xff\xff\xff\xff")); err != nil {
		t.Errorf("null: %v", err)
	}
}

// TestCheck_Null: Check refuses null instead of the array in ApiVersions, because kafka-go's Conn panics on it.
// Elsewhere it accepts null as an empty array.
func TestCheck_Null(t *testing.T) {
	if err := Check(apiAPIVersions, 0, []byte("\x00\x00\xff\xff\xff\xff")); !errors.Is(err, ErrMalformed) {
		t.Errorf("ApiVersions: %v", err)
	}
	if err := Check(apiOffsetFetch, 1, []byte("\xff\xff\xff\xff")); err != nil {
		t.Errorf("OffsetFetch: %v", err)
	}
}

// TestCheck_Unknown: Check refuses responses of APIs for which it has no shape.
func TestCheck_Unknown(t *testing.T) {
	for _, a := range []api{{1, 11}, {apiMetadata, 9}, {apiMetadata, -1}, {apiSyncGroup, 1}, {-1, 0}} {
		if Checks(a.key, a.version) {
			t.Errorf("%v is said to be known", a)
		}
		if err := Check(a.key, a.version, make([]byte, 100)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v: %v", a, err)
		}
	}
}

// TestRead_AllocatesByBytes: if a size field announces more bytes than arrive, Read allocates no buffer of that size.
func TestRead_AllocatesByBytes(t *testing.T) {
	if n := allocated(func() {
		if _, err := Read(strings.NewReader("short"), 1<<30); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	}); n > 1<<16 {
		t.Errorf("%d bytes allocated for 5", n)
	}
	if b, err := Read(strings.NewReader("response and more"), 8); string(b) != "response" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := Read(strings.NewReader(""), 0); len(b) != 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// FuzzCheck: kafka-go decodes what Check accepts without a panic and without an allocation beyond the bound.
func FuzzCheck(f *testing.F) {
	all := apis()
	for i, a := range all {
		f.Add(byte(i), a.body(1))
		f.Add(byte(i), a.body(3))
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		a := all[int(which)%len(all)]
		if Check(a.key, a.version, body) != nil || ofConn[a.key] {
			return
		}
		if n := allocated(func() { _ = a.decode(body) }); n > maxDecoded+MaxSize {
			t.Errorf("%v: %d bytes allocated for %d", a, n, len(body))
		}
	})
}
