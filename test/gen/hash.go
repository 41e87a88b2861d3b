package gen

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
)

// Coordinates are the topic, partition and offset of a record.
type Coordinates struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Hash returns the canonical hash of the whole row that a record must become, the columns with its coordinates
// included: 16 bytes of SHA-256 over the canonical text, in hexadecimal. test/oracle/canon.py computes the same from a
// row of a table and defines the text:
//
//	null       ~
//	string     "<bytes>:<text>
//	integer    <decimal>
//	double     d<the IEEE 754 bits as a signed decimal integer>
//	boolean    t or f
//	timestamp  m<microseconds since 1970>
//	array      [<length>:<values, separated by commas>]
//	struct     {<fields in order of their names, separated by commas>}
//	row        its columns in order of their names, separated by commas
func (rec *Record) Hash(at Coordinates) string {
	o := &rec.Order
	b := make([]byte, 0, 512)
	b = strconv.AppendInt(b, at.Offset, 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, int64(at.Partition), 10)
	b = append(b, ",m"...)
	b = strconv.AppendInt(b, rec.Time*1000, 10)
	b = canonString(append(b, ','), &at.Topic)
	b = canonString(append(b, ','), o.Coupon)
	if b = append(b, ','); o.CreatedAt == nil {
		b = append(b, '~')
	} else {
		b = strconv.AppendInt(append(b, 'm'), *o.CreatedAt, 10)
	}
	b = canonString(append(b, ','), o.CustomerID)
	b = canonDouble(append(b, ','), o.Discount)
	b = canonString(append(b, ','), &o.OrderID)
	switch b = append(b, ','); {
	case o.Paid == nil:
		b = append(b, '~')
	case *o.Paid:
		b = append(b, 't')
	default:
		b = append(b, 'f')
	}
	b = canonInt(append(b, ','), o.Quantity)
	b = canonShipping(append(b, ','), o.Shipping)
	b = canonString(append(b, ','), o.Status)
	b = canonInt(append(b, ','), o.StoreID)
	if b = append(b, ','); !o.HasTags {
		b = append(b, '~')
	} else {
		b = strconv.AppendInt(append(b, '['), int64(len(o.Tags)), 10)
		b = append(b, ':')
		for i, tag := range o.Tags {
			if i > 0 {
				b = append(b, ',')
			}
			b = canonString(b, tag)
		}
		b = append(b, ']')
	}
	b = canonDouble(append(b, ','), o.Total)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

func canonShipping(b []byte, s *Shipping) []byte {
	if s == nil {
		return append(b, '~')
	}
	b = canonString(append(b, '{'), s.City)
	b = canonString(append(b, ','), s.Country)
	b = canonDouble(append(b, ','), s.Lat)
	b = canonString(append(b, ','), s.Note)
	b = canonString(append(b, ','), s.Street)
	b = canonString(append(b, ','), s.Zip)
	return append(b, '}')
}

func canonString(b []byte, s *string) []byte {
	if s == nil {
		return append(b, '~')
	}
	b = strconv.AppendInt(append(b, '"'), int64(len(*s)), 10)
	return append(append(b, ':'), *s...)
}

func canonInt[T int32 | int64](b []byte, n *T) []byte {
	if n == nil {
		return append(b, '~')
	}
	return strconv.AppendInt(b, int64(*n), 10)
}

func canonDouble(b []byte, f *float64) []byte {
	if f == nil {
		return append(b, '~')
	}
	return strconv.AppendInt(append(b, 'd'), int64(math.Float64bits(*f)), 10)
}
