package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kerr"

	"sluice/classify"
	"sluice/classify/classtest"
	"sluice/connector/kafka/dial"
	"sluice/reliability/hold"
)

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want classify.Class
	}{
		{kafka.GroupCoordinatorNotAvailable, classify.Transient},
		{kafka.NotCoordinatorForGroup, classify.Transient},
		{kafka.GroupLoadInProgress, classify.Transient},
		{kafka.UnknownTopicOrPartition, classify.Transient},
		{kafka.NotLeaderForPartition, classify.Transient},
		{kafka.FencedLeaderEpoch, classify.Transient},
		{kafka.ThrottlingQuotaExceeded, classify.Transient},
		{kafka.IllegalGeneration, classify.Fenced},
		{kafka.UnknownMemberId, classify.Fenced},
		{kafka.RebalanceInProgress, classify.Fenced},
		{kafka.FencedInstanceID, classify.Fenced},
		{kafka.Error(113), classify.Fenced},
		{kafka.ErrGenerationEnded, classify.Fenced},
		{kafka.GroupAuthorizationFailed, classify.Fatal},
		{kafka.TopicAuthorizationFailed, classify.Fatal},
		{kafka.SASLAuthenticationFailed, classify.Fatal},
		{kafka.InvalidSessionTimeout, classify.Fatal},
		{kafka.InconsistentGroupProtocol, classify.Fatal},
		{kafka.UnsupportedVersion, classify.Fatal},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, classify.Fatal},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, classify.Fatal},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, classify.Fatal},
		{&net.OpError{Op: "dial", Err: errors.New("no route")}, classify.Transient},
		{&dial.Error{Cause: dial.CredentialsRefused, Err: kafka.SASLAuthenticationFailed}, classify.Fatal},
		{&dial.Error{Cause: dial.WantsTLS, Err: io.EOF}, classify.Fatal},
		{&dial.Error{Cause: dial.UnknownCA}, classify.Fatal},
		{&dial.Error{Cause: dial.Unreachable, Err: syscall.ECONNREFUSED}, classify.Transient},
		{&dial.Error{Cause: dial.Closed, Err: io.EOF}, classify.Transient},
		{&dial.Error{Cause: dial.Silent, Err: context.Canceled}, classify.Canceled},
		{kafka.ErrGroupClosed, classify.Canceled},
		{context.Canceled, classify.Canceled},
		{context.DeadlineExceeded, classify.Transient},
		{kafka.Unknown, classify.Transient},
		{hold.New(hold.Truncated, "", kafka.FencedLeaderEpoch), classify.Fatal},
	} {
		if got := classify.Of(Classify(fmt.Errorf("ask: %w", tt.err))); got != tt.want {
			t.Errorf("%v is %v, want %v", tt.err, got, tt.want)
		}
	}
	if Classify(nil) != nil {
		t.Error("nil did not stay nil")
	}
}

// TestEveryCode: each error code of Kafka has the class that the table of package classtest gives it. The codes are
// those that kafka-go or franz-go names; if a new version of either library names a code that is not in the table, the
// test fails.
func TestEveryCode(t *testing.T) {
	known := map[string]error{
		"the group was closed": Classify(kafka.ErrGroupClosed),
		"the generation ended": Classify(kafka.ErrGenerationEnded),
	}
	last := -1
	for code := -100; code < 2000; code++ {
		if named := kerr.TypedErrorForCode(int16(code)); named != nil && int(named.Code) == code {
			known[fmt.Sprintf("%d %s", code, named.Message)] = Classify(fmt.Errorf("ask: %w", kafka.Error(code)))
			last = max(last, code)
		} else if title := kafka.Error(code).Title(); code != 0 && title != "" {
			t.Errorf("%d: kafka-go knows it as %q, and the list of codes does not", code, title)
		} else if class, sure := classify.Known(Classify(kafka.Error(code))); class != classify.Transient || sure {
			t.Errorf("%d is no code of Kafka, and is %v", code, class)
		}
	}
	known[fmt.Sprintf("%d and above, below -1", last+1)] = kafka.Error(last + 1)
	classtest.Check(t, "kafka", known)
}

// TestClassify_KafkaRetriable: an error code that Kafka's own clients retry is Transient or Fenced, so it never stops
// the member.
func TestClassify_KafkaRetriable(t *testing.T) {
	for code := int16(-1); code < 2000; code++ {
		err := kerr.TypedErrorForCode(code)
		if err == nil || !err.Retriable {
			continue
		}
		if class, _ := classOf(kafka.Error(code)); class != classify.Transient && class != classify.Fenced {
			t.Errorf("%s: Kafka would retry, we call it %v", err.Message, class)
		}
	}
}

// TestOneListEach: no code is in two of the lists passing, fenced, refusals and hopeless, because only the first list
// would count.
func TestOneListEach(t *testing.T) {
	seen := map[int]int{}
	for _, list := range [][]kafka.Error{passing[:], fenced[:], refusals[:], hopeless[:]} {
		for _, code := range list {
			if seen[int(code)]++; seen[int(code)] > 1 {
				t.Errorf("%d %s stands twice", code, code.Title())
			}
		}
	}
}

func TestHeld(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want hold.Reason
	}{
		{kafka.GroupAuthorizationFailed, hold.KafkaDenied},
		{tls.RecordHeaderError{}, hold.KafkaDenied},
		{&dial.Error{Cause: dial.NoTLS}, hold.KafkaDenied},
		{&dial.Error{Cause: dial.NotKafka}, hold.KafkaIncompatible},
		{fmt.Errorf("metadata: %w", &dial.Error{Cause: dial.TooOld}), hold.KafkaIncompatible},
		{tooOld(protocol.Metadata, versionRange{0, 9}, metadataVersion, metadataVersion), hold.KafkaIncompatible},
		{&dial.Error{Cause: dial.Unreachable}, ""},
		{kafka.InvalidSessionTimeout, hold.KafkaDown},
		{hold.New(hold.TopicMissing, "", nil), hold.TopicMissing},
		{kafka.LeaderNotAvailable, ""},
		{kafka.IllegalGeneration, ""},
	} {
		var (
			got hold.Reason
			h   *hold.Error
		)
		if errors.As(AsHold("joining the group", tt.err), &h) {
			got = h.Reason
		}
		if got != tt.want {
			t.Errorf("%v: reason %q, want %q", tt.err, got, tt.want)
		}
	}
}
