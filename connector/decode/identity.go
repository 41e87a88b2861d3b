package decode

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
)

var (
	_ connector.IdentityBuilder = (*jsonDecoder)(nil)
	_ connector.IDDecoder       = JSON{}
)

// identities makes the fingerprints of rows. If the identity is a field, the table has it as a column. If it is a
// header or the content, only the record has it, so the row's fingerprint gets a column.
type identities struct {
	identity   idempotency.Identity
	identifier *schema.Identifier // nil if rows have no identity
	hasher     *idempotency.Hasher
	text       [2*len(idempotency.Fingerprint{}) + padding]byte
	keepIDs    bool
	ids        idempotency.IDs     // the producers' ids, if no column has them: the values of a header
	entries    []idempotency.Entry // the fingerprint entries of the last chunk
}

func newIdentities(id idempotency.Identity, keepIDs bool, table *schema.Schema) (identities, error) {
	identifier, err := table.Identifier(id)
	if identifier != nil && keepIDs {
		identifier.KeepIDs()
	}
	return identities{identity: id, identifier: identifier, hasher: idempotency.NewHasher(id), keepIDs: keepIDs && id.By == idempotency.ByHeader}, err
}

// WithIDs implements [connector.IDDecoder].
func (j JSON) WithIDs() connector.Decoder {
	j.IDs = true
	return j
}

// print writes the fingerprint of a record into row row of column c. The row stays null if the record has no identity.
func (i *identities) print(c *column, row int, r *connector.Record) {
	var f idempotency.Fingerprint
	switch i.identity.By {
	case idempotency.ByHeader:
		var id []byte
		for _, h := range slices.Backward(r.Headers) { // the last header of a name counts, as for Kafka's own clients
			if h.Key == i.identity.Name {
				id = h.Value
				f = i.hasher.Header(id)
				break
			}
		}
		if i.keepIDs {
			i.ids.Add(id)
		}
	case idempotency.ByContent:
		f = i.hasher.Content(r.Key, r.Value)
	case idempotency.ByNone, idempotency.ByField:
	}
	if f.IsZero() {
		return
	}
	hex.Encode(i.text[:], f[:])
	c.fillMissed(row)
	c.putText(i.text[:], 0, 2*len(f))
}

// of computes the fingerprint entries of a chunk's rows, which Entries returns.
func (i *identities) of(rows arrow.RecordBatch) {
	i.entries = nil
	if i.identifier == nil {
		return
	}
	var err error
	if i.entries, err = i.identifier.Of(rows, make([]idempotency.Entry, 0, rows.NumRows())); err != nil {
		// Can only be a bug: the rows were built for this identity.
		panic(fmt.Sprintf("decode: the identity of rows that were built for it: %v", err))
	}
	if i.keepIDs {
		i.ids.MoveTo(i.entries)
	}
}

// Entries implements [connector.IdentityBuilder].
func (d *jsonDecoder) Entries() []idempotency.Entry { return d.entries }
