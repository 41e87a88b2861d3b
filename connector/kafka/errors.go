package kafka

import (
	"errors"
	"slices"

	"github.com/segmentio/kafka-go"

	"sluice/classify"
	"sluice/connector/kafka/dial"
	"sluice/reliability/hold"
)

// Codes of Kafka's protocol for which kafka-go has no name or another one.
const (
	errOperationNotAttempted kafka.Error = 55  // the error of a part of a request that failed as a whole
	errFencedMemberEpoch     kafka.Error = 110 // KIP-848
	errStaleMemberEpoch      kafka.Error = 113 // KIP-848
	errRebootstrapRequired   kafka.Error = 129 // KIP-1102
)

// The tables below give each Kafka error code a class. A code in none of them belongs to no request that we send; it
// counts as Transient. Some callers decide more precisely: for the fetcher, an offset out of range is a hold with a
// reason of its own. Source: https://kafka.apache.org/protocol#protocol_error_codes.

// passing errors are transient: the cluster is changing, or the metadata of one side are old.
var passing = [...]kafka.Error{
	kafka.Unknown,                 // an unexpected error inside the broker
	kafka.InvalidMessage,          // a CRC that failed in transit (KAFKA-1367)
	kafka.UnknownTopicOrPartition, // brokers learn of a new topic one after the other
	kafka.LeaderNotAvailable,
	kafka.NotLeaderForPartition,
	kafka.RequestTimedOut,
	kafka.BrokerNotAvailable,
	kafka.ReplicaNotAvailable,
	kafka.StaleControllerEpoch,
	kafka.NetworkException,
	kafka.GroupLoadInProgress,
	kafka.GroupCoordinatorNotAvailable,
	kafka.NotCoordinatorForGroup,
	kafka.NotEnoughReplicas,
	kafka.NotEnoughReplicasAfterAppend,
	kafka.TopicAlreadyExists, // another member created it meanwhile
	kafka.NotController,
	kafka.ConcurrentTransactions,
	errOperationNotAttempted,
	kafka.KafkaStorageError,
	kafka.ReassignmentInProgress,
	kafka.FetchSessionIDNotFound,
	kafka.InvalidFetchSessionEpoch,
	kafka.ListenerNotFound,
	kafka.FencedLeaderEpoch,  // our metadata are old; this says nothing about the position
	kafka.UnknownLeaderEpoch, // the broker's metadata are old
	kafka.StaleBrokerEpoch,
	kafka.OffsetNotAvailable,
	kafka.MemberIDRequired,
	kafka.PreferredLeaderNotAvailable,
	kafka.EligibleLeadersNotAvailable,
	kafka.UnstableOffsetCommit,
	kafka.ThrottlingQuotaExceeded,
	kafka.UnknownTopicID, // whether the topic was created again is decided by metadata alone
	kafka.InconsistentTopicID,
	kafka.FetchSessionTopicIDError,
	errRebootstrapRequired,
}

// fenced errors mean that this member no longer has its membership or its partition; another member may have it now.
var fenced = [...]kafka.Error{
	kafka.IllegalGeneration,
	kafka.UnknownMemberId,
	kafka.RebalanceInProgress,
	kafka.GroupIdNotFound, // older versions of the request return IllegalGeneration instead
	kafka.FencedInstanceID,
	kafka.InvalidProducerEpoch,
	kafka.ProducerFenced,
	errFencedMemberEpoch,
	errStaleMemberEpoch,
}

// refusals are errors by which the cluster denies access.
var refusals = [...]kafka.Error{
	kafka.TopicAuthorizationFailed,
	kafka.GroupAuthorizationFailed,
	kafka.ClusterAuthorizationFailed,
	kafka.TransactionalIDAuthorizationFailed,
	kafka.UnsupportedSASLMechanism,
	kafka.IllegalSASLState,
	kafka.SASLAuthenticationFailed,
	kafka.SecurityDisabled,
	kafka.DelegationTokenAuthDisabled,
	kafka.DelegationTokenNotFound,
	kafka.DelegationTokenOwnerMismatch,
	kafka.DelegationTokenRequestNotAllowed,
	kafka.DelegationTokenAuthorizationFailed,
	kafka.DelegationTokenExpired,
	kafka.InvalidPrincipalType,
	kafka.PrincipalDeserializationFailure,
}

// hopeless errors come back at every retry until an operator changes something.
var hopeless = [...]kafka.Error{
	kafka.OffsetOutOfRange,
	kafka.InvalidMessageSize,  // the requested size of a fetch is invalid
	kafka.MessageSizeTooLarge, // max.message.bytes
	kafka.OffsetMetadataTooLarge,
	kafka.InvalidTopic,
	kafka.RecordListTooLarge, // segment.bytes
	kafka.InvalidRequiredAcks,
	kafka.InconsistentGroupProtocol, // the group belongs to another program
	kafka.InvalidGroupId,
	kafka.InvalidSessionTimeout, // outside the broker's group.{min,max}.session.timeout.ms
	kafka.InvalidCommitOffsetSize,
	kafka.InvalidTimestamp, // outside the topic's message.timestamp.{before,after}.max.ms
	kafka.UnsupportedVersion,
	kafka.InvalidPartitionNumber,
	kafka.InvalidReplicationFactor,
	kafka.InvalidReplicaAssignment,
	kafka.InvalidConfiguration,
	kafka.InvalidRequest,
	kafka.UnsupportedForMessageFormat,
	kafka.PolicyViolation,
	kafka.UnsupportedCompressionType,
	kafka.GroupMaxSizeReached,
	kafka.InvalidRecord, // for example a record without a key for a compacted topic
	kafka.InconsistentClusterID,
}

func classOf(code kafka.Error) (class classify.Class, known bool) {
	switch {
	case slices.Contains(passing[:], code):
		return classify.Transient, true
	case slices.Contains(fenced[:], code):
		return classify.Fenced, true
	case denied(code), slices.Contains(hopeless[:], code):
		return classify.Fatal, true
	}
	return classify.Transient, false
}

// denied reports whether a code means that the cluster understood the request and denies it.
func denied(code kafka.Error) bool { return slices.Contains(refusals[:], code) }

// Classify gives an error its class. A Kafka error code decides it if there is one. Else a closed group is Canceled, an
// ended generation Fenced, and a failure to open a connection Fatal if only a person or a file can end it; for another
// such failure package classify decides, and if it does not know the error, the class is Transient. Classify returns
// all other errors, nil and a [hold.Error] unchanged.
func Classify(err error) error {
	if _, held := errors.AsType[*hold.Error](err); held || err == nil {
		return err
	}
	if code, ok := errors.AsType[kafka.Error](err); ok {
		if class, known := classOf(code); known {
			return classify.Mark(err, class)
		}
		return err
	}
	switch {
	case errors.Is(err, kafka.ErrGroupClosed):
		return classify.Mark(err, classify.Canceled)
	case errors.Is(err, kafka.ErrGenerationEnded):
		return classify.Mark(err, classify.Fenced)
	case untrusted(err):
		return classify.Mark(err, classify.Fatal)
	}
	_, unopened := errors.AsType[*dial.Error](err)
	if _, known := classify.Known(err); unopened && !known {
		return classify.Mark(err, classify.Transient)
	}
	return err
}

// AsHold turns a Fatal error into a [hold.Error]; doing describes the failed operation for people, such as "reading the
// metadata of topic orders". The reason is kafka_incompatible if a server is no Kafka broker or is too old,
// kafka_denied if the cluster denies access or no connection can be opened until a person or a file changes something,
// else kafka_down. An error of another class is returned with its class.
func AsHold(doing string, err error) error {
	err = Classify(err)
	if err == nil || classify.Of(err) != classify.Fatal {
		return err
	}
	if _, held := errors.AsType[*hold.Error](err); held {
		return err
	}
	code, ok := errors.AsType[kafka.Error](err)
	switch {
	case incompatible(err):
		return holdError{hold.New(hold.KafkaIncompatible, doing+" cannot work: "+err.Error(), nil), err}
	case ok && denied(code), untrusted(err):
		return holdError{hold.New(hold.KafkaDenied, doing+" is refused: "+err.Error(), nil), err}
	case code == kafka.InconsistentGroupProtocol:
		return holdError{hold.New(hold.KafkaDown, doing+" is refused: "+ForeignGroup+": "+err.Error(), nil), err}
	}
	return holdError{hold.New(hold.KafkaDown, doing+" fails and needs a person: "+err.Error(), nil), err}
}

// ForeignGroup is the detail of a hold for a group that no member can join, with what to do.
const ForeignGroup = "another consumer with other assignors is in this group; give this pipeline a group of its own (kafka.group)"

// holdError is a hold that also wraps its cause. Its detail contains the text of the cause, because a hold is often
// shown without its error.
type holdError struct {
	error
	cause error
}

func (h holdError) Unwrap() []error { return []error{h.error, h.cause} }

// incompatible reports whether err shows that a server does not speak Kafka's protocol, or that a broker, or the
// protocol version of its cluster, is too old.
func incompatible(err error) bool {
	if e, ok := errors.AsType[*dial.Error](err); ok {
		return e.Cause == dial.NotKafka || e.Cause == dial.TooOld
	}
	return errors.Is(err, errVersion) || errors.Is(err, errNoTopicID)
}

// untrusted reports whether err means that one side refuses the other until a person or a file changes something: wrong
// credentials, a certificate, or a port that is not Kafka's.
func untrusted(err error) bool {
	if e, ok := errors.AsType[*dial.Error](err); ok {
		return e.Refused()
	}
	return classify.Untrusted(err)
}
