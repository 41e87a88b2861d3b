package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/connector/schema"
	"sluice/idempotency"
)

// Identity is the section identity of a topic: how to detect records that a producer sent twice.
type Identity struct {
	By     string // parsed by idempotency.ParseIdentity
	Window time.Duration
	Sweep  time.Duration
	Rate   int // records per second; 0 if not set
}

// Fingerprints is the section fingerprints.
type Fingerprints struct {
	Store   string // "memory" or "postgres"
	URLFile string // file with the URL of Postgres; read at the start
	CAFile  string // file of certificate authorities; read at the start
	// InsecurePlaintext allows a password without TLS.
	InsecurePlaintext bool
}

func defaultIdentity() Identity {
	return Identity{By: "none", Window: 24 * time.Hour, Sweep: time.Hour}
}

func (i *Identity) keys() []key {
	return []key{
		{"identity.by", text(&i.By, func(s string) error {
			if _, err := idempotency.ParseIdentity(s); err != nil {
				return fmt.Errorf("%w: write one of them", err)
			}
			return nil
		}), ""},
		{"identity.window", duration(&i.Window, time.Minute, idempotency.MaxWindow), ""},
		{"identity.sweep", duration(&i.Sweep, time.Minute, 24*time.Hour), ""},
		{"identity.rate", count(&i.Rate, 0, 100_000_000), ""},
	}
}

// ProducerIdentity returns the declared identity, which the loader has checked. Dead letters have none.
func (t *Topic) ProducerIdentity() idempotency.Identity {
	id, err := idempotency.ParseIdentity(t.Identity.By)
	if err != nil || t.IsLetters() {
		return idempotency.Identity{}
	}
	return id
}

// Columns returns the columns of a new table of the topic: those of the schema, the column for fingerprints if the
// table stores them, the optional columns of metadata_columns, and those that partition_by computes. It leaves out the
// other columns for Kafka's coordinates, which every table has.
func (t *Topic) Columns() (*schema.Schema, error) {
	columns, err := t.declared()
	if err != nil {
		return nil, err
	}
	if t.ProducerIdentity().Stored() {
		columns = columns.WithFingerprint()
	}
	for _, word := range t.MetadataColumns {
		columns = columns.WithMetadata(word)
	}
	if t.Unknown() == unknownRescue {
		columns = columns.WithRescued()
	}
	if len(t.PartitionBy) > 0 {
		return columns.WithPartitionBy(t.PartitionBy)
	}
	return columns, nil
}

// checkIdentity reports a problem if the schema lacks the column that the identity names.
func (l *loader) checkIdentity(name string, t *Topic) {
	at := l.set(name, "identity.by")
	if l.failed(at) || l.failed(l.set(name, "schema")) || t.IsLetters() {
		return
	}
	columns, err := t.Columns()
	if err != nil {
		return // the schema has a problem of its own
	}
	if _, err := columns.WithKafkaColumns().Identifier(t.ProducerIdentity()); err != nil {
		_, text, _ := strings.Cut(err.Error(), ": ")
		if name, _, _ := strings.Cut(t.ProducerIdentity().Name, "."); slices.Contains(columns.Partitions(), name) {
			l.report(l.at(at), "%s", text) // the text itself says what to do
			return
		}
		if t.Infers() {
			l.report(l.at(at), "%s: declare it, such as schema: \"order_id string\", with unknown_fields: add for the columns of the other fields", text)
			return
		}
		l.report(l.at(at), "%s: write a column of the schema, or field.of.a.struct", text)
	}
}

// fingerprintNeed returns the memory that the declared rates need, and the first key that declares a rate. identities
// reports whether any topic declares an identity. A declared rate is that of all partitions of a topic, because one
// member may own all of them.
func (c *Config) fingerprintNeed(l *loader) (bytes int64, at string, identities bool) {
	add := func(name string, t *Topic) {
		if t.ProducerIdentity().By == idempotency.ByNone {
			return
		}
		identities = true
		if n := idempotency.SizeOf(float64(t.Identity.Rate), t.Identity.Window); n > 0 {
			if bytes += n; at == "" {
				at = l.set(name, "identity.rate")
			}
		}
	}
	for _, name := range c.TopicNames() {
		t := c.Topics[name]
		add(name, &t)
	}
	for _, p := range c.Patterns {
		add(p.Name, &p.Topic)
	}
	return bytes, at, identities
}

// checkFingerprints checks the section fingerprints: store: postgres needs url_file, store: memory must not have one,
// and the URL in the file must be valid.
func (l *loader) checkFingerprints() {
	f, at := &l.config.Fingerprints, "fingerprints.url_file"
	switch {
	case l.failed(at) || l.failed("fingerprints.store"):
	case f.Store == "postgres" && f.URLFile == "":
		l.report(l.at("fingerprints.store"), "postgres needs fingerprints.url_file: write the name of a file that holds postgres://user:password@host:port/database?sslmode=verify-full")
	case f.Store == "memory" && f.URLFile != "":
		l.report(l.at(at), "has no effect with store: memory: write store: postgres, or remove it")
	default:
		l.secretFile(at, &f.URLFile)
		l.checkFingerprintsURL()
	}
}

// reserve returns b with memory for fingerprints: a fifth of the limit, or more if the declared rates need more. It
// returns b unchanged if no topic declares an identity, or if Postgres stores the fingerprints. It reports a problem
// if less than minMemory would be left for everything else.
func (l *loader) reserve(b Budget) Budget {
	need, at, identities := l.config.fingerprintNeed(l)
	if !identities || l.config.Fingerprints.Store != "memory" {
		return b
	}
	share := max(b.Limit/5, need)
	if need > b.Limit/5 && b.Limit-share < minMemory {
		l.report(l.at(at), "the fingerprints of the declared rates take %s (about %d bytes for each record of a window, and of an hour more); memory.limit is %s, of which %s are needed for everything else: "+
			"give the process %s, or write a shorter window",
			RoundSize(need), idempotency.BytesPerEntry, RoundSize(b.Limit), RoundSize(minMemory), RoundSize(need+minMemory+1<<20))
		return b
	}
	return b.beside(share)
}
