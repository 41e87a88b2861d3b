package frame

import "math"

// kind is how a field is encoded.
type kind uint8

const (
	fixed   kind = iota + 1 // a number of width bytes
	text                    // a string
	blob                    // bytes
	nested                  // bytes that hold a structure, in classic encoding
	structs                 // an array of structures
	scalars                 // an array of fields without tags
)

// field is a field of a response.
type field struct {
	kind         kind
	since, until int16 // the first and the last version with this field
	width        int   // the size of a field of kind fixed
	// weight estimates how many bytes kafka-go allocates for one element of an array, or for one byte of a blob. It
	// includes what kafka-go builds from the elements: maps, and slices with spare capacity.
	weight   int
	required bool    // true if kafka-go ends the process when it decodes null
	of       []field // the fields of an array's elements, or of a nested structure
}

func number(width int) field { return field{kind: fixed, until: math.MaxInt16, width: width} }
func str() field             { return field{kind: text, until: math.MaxInt16} }

func bin(weight int) field { return field{kind: blob, until: math.MaxInt16, weight: weight} }

func list(weight int, of field) field {
	return field{kind: scalars, until: math.MaxInt16, weight: weight, of: []field{of}}
}

func array(weight int, of ...field) field {
	return field{kind: structs, until: math.MaxInt16, weight: weight, of: of}
}

func within(of ...field) field { return field{kind: nested, until: math.MaxInt16, of: of} }

func (f field) from(version int16) field { f.since = version; return f }
func (f field) upTo(version int16) field { f.until = version; return f }
func (f field) notNull() field           { f.required = true; return f }

// shape is the layout of an API's responses as kafka-go decodes them.
type shape struct {
	newest   int16 // the newest version that kafka-go knows
	flexible int16 // the first version with compact lengths; 0 if kafka-go knows none
	fields   []field
}

// Numbers of the APIs whose responses kafka-go decodes in this program.
const (
	apiMetadata        = 3
	apiOffsetCommit    = 8
	apiOffsetFetch     = 9
	apiFindCoordinator = 10
	apiJoinGroup       = 11
	apiHeartbeat       = 12
	apiLeaveGroup      = 13
	apiSyncGroup       = 14
	apiDescribeGroups  = 15
	apiAPIVersions     = 18
	apiDescribeConfigs = 32
)

// shapeOf returns the shape of an API's responses. For an API that this package does not know, the shape has no fields.
// The shapes of JoinGroup, SyncGroup and Heartbeat follow kafka-go's type Conn, the others its type Transport. Conn
// decodes some of the others, too, but in the same way.
func shapeOf(key int16) shape {
	switch key {
	case apiMetadata:
		return metadata()
	case apiOffsetCommit:
		return shape{newest: 7, fields: []field{
			number(4).from(3), // throttle time
			array(128, str(), array(24, number(4), number(2))),
		}}
	case apiOffsetFetch:
		return shape{newest: 5, fields: []field{
			number(4).from(3), // throttle time
			array(192, str(), array(192, number(4), number(8), number(4).from(5), str(), number(2))),
			number(2).from(2), // error
		}}
	case apiFindCoordinator:
		return shape{newest: 2, fields: []field{
			number(4).from(1), number(2), str().from(1), // throttle time, error, its text
			number(4), str(), number(4),
		}}
	case apiJoinGroup:
		return shape{newest: 2, fields: []field{
			number(4).from(2), number(2), number(4), str(), str(), str(), // throttle time, error, generation, protocol, leader, member
			array(320, str(), within(number(2), list(64, str()), bin(1))),
		}}
	case apiHeartbeat:
		return shape{newest: 0, fields: []field{number(2)}}
	case apiLeaveGroup:
		return shape{newest: 4, flexible: 4, fields: []field{
			number(2), number(4).from(1),
			array(128, str(), str(), number(2)).from(3),
		}}
	case apiSyncGroup:
		return shape{newest: 0, fields: []field{
			number(2),
			within(number(2), array(256, str(), list(48, number(4))), bin(1)),
		}}
	case apiDescribeGroups:
		return describeGroups()
	case apiAPIVersions:
		return shape{newest: 2, fields: []field{
			number(2), array(64, number(2), number(2), number(2)).notNull(), number(4).from(1),
		}}
	case apiDescribeConfigs:
		return describeConfigs()
	}
	return shape{}
}

// metadata returns the shape of Metadata. Its weights include what kafka-go builds from the response: a connection pool
// for each broker, and maps of topics and partitions.
func metadata() shape {
	nodes := list(8, number(4))
	return shape{newest: 8, fields: []field{
		number(4).from(3), // throttle time
		array(768, number(4), str(), number(4), str().from(1)),
		str().from(2), number(4).from(1), // cluster, controller
		array(768, number(2), str(), number(1).from(1),
			array(320, number(2), number(4), number(4), number(4).from(7), nodes, nodes, nodes.from(5)),
			number(4).from(8)),
		number(4).from(8),
	}}
}

// describeGroups returns the shape of DescribeGroups. The metadata and assignments of members are blobs that may have
// any format. Their weight is the worst case: kafka-go may decode every two bytes as a string, which it appends to a
// slice.
func describeGroups() shape {
	const anything = 24
	return shape{newest: 5, flexible: 5, fields: []field{
		number(4).from(1),
		array(320, number(2), str(), str(), str(), str(),
			array(512, str(), str().from(4), str(), str(), bin(anything), bin(anything)),
			number(4).from(3)),
	}}
}

func describeConfigs() shape {
	return shape{newest: 3, fields: []field{
		number(4),
		array(256, number(2), str(), number(1), str(),
			array(384, str(), str(), number(1), number(1).upTo(0), number(1).from(1), number(1),
				array(128, str(), str(), number(1)).from(1),
				number(1).from(3), str().from(3))),
	}}
}
