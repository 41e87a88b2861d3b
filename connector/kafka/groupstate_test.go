package kafka

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// subscriptions are the bytes that members of several clients send as their subscription when they join, by version of
// ConsumerProtocolSubscription.
var subscriptions = map[string]struct {
	raw  string
	want []string
}{
	"v0, kafka-go":   {"\x00\x00" + "\x00\x00\x00\x02\x00\x01t\x00\x02uu" + "\x00\x00\x00\x03abc", []string{"t", "uu"}},
	"v0, no data":    {"\x00\x00" + "\x00\x00\x00\x01\x00\x01t" + "\xff\xff\xff\xff", []string{"t"}},
	"v1, owned":      {"\x00\x01" + "\x00\x00\x00\x01\x00\x01t" + "\x00\x00\x00\x00" + "\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x07", []string{"t"}},
	"v2, generation": {"\x00\x02" + "\x00\x00\x00\x01\x00\x01t" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x05", []string{"t"}},
	"v3, librdkafka": {"\x00\x03" + "\x00\x00\x00\x01\x00\x01t" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\xff\xff\xff\xff" + "\xff\xff", []string{"t"}},
	"v3, rack":       {"\x00\x03" + "\x00\x00\x00\x01\x00\x01t" + "\x00\x00\x00\x00" + "\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x07" + "\x00\x00\x00\x05" + "\x00\x02r1", []string{"t"}},
	"v9, of later":   {"\x00\x09" + "\x00\x00\x00\x01\x00\x01t" + "whatever comes", []string{"t"}},
	"nothing":        {"", nil},
	"of another":     {"{\"json\":true}", nil},
	"absurd":         {"\x00\x00" + "\x7f\xff\xff\xff\x00\x01t", nil},
	"cut off":        {"\x00\x00" + "\x00\x00\x00\x02\x00\x01t", nil},
}

// TestGroupState_Subscriptions: the members of a group are listed, with any client. Their topics are known if their
// subscription has a known format.
func TestGroupState_Subscriptions(t *testing.T) {
	for name, c := range subscriptions {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *cluster) {
				s.create("t", 1)
				s.fake.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
					s.fake.KeepControl()
					resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
					of := kmsg.NewDescribeGroupsResponseGroup()
					of.Group, of.State, of.ProtocolType, of.Protocol = "g", "Stable", "consumer", "cooperative-sticky"
					m := kmsg.NewDescribeGroupsResponseGroupMember()
					m.MemberID, m.ClientID, m.ClientHost, m.ProtocolMetadata = "rdkafka-1", "rdkafka", "/10.0.0.1", []byte(c.raw)
					m.MemberAssignment = []byte("whatever was assigned")
					of.Members = append(of.Members, m)
					resp.Groups = append(resp.Groups, of)
					return resp, nil, true
				})
				a := s.start(nil, "t")
				got, err := a.State(t.Context())
				want := GroupState{State: "Stable", Foreign: "cooperative-sticky", Members: []GroupMember{{"rdkafka", "/10.0.0.1", c.want}}}
				if d := cmp.Diff(want, got); err != nil || d != "" {
					t.Errorf("%v (-want +got):\n%s", err, d)
				}
				a.stop()
			})
		})
	}
}

// TestGroupState_OwnMembers: a group does not count as foreign if all of its members run this program.
func TestGroupState_OwnMembers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *cluster) {
		s.create("t", 2)
		a := s.start(nil, "t")
		s.until("joined", a.has(2))
		got, err := a.State(t.Context())
		if err != nil || got.State != "Stable" || got.Foreign != "" || len(got.Members) != 1 || !cmp.Equal(got.Members[0].Topics, []string{"t"}) {
			t.Errorf("%+v %v", got, err)
		}
		a.stop()
	})
}
