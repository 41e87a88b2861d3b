//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

// identified makes a member recognise duplicates by the order's id. With a database URL the member keeps the
// fingerprints in Postgres.
func (s *scene) identified(database string) setting {
	s.t.Helper()
	fingerprints := ""
	if database != "" {
		file := filepath.Join(s.dir, "database-url")
		if err := os.WriteFile(file, []byte(database+"\n"), 0o600); err != nil {
			s.t.Fatal(err)
		}
		fingerprints = fmt.Sprintf("\nfingerprints: {store: postgres, url_file: %q}", file)
	}
	return func(c *settings) {
		c.bad += "\n  identity: {by: 'field:order_id'}"
		c.patient += fingerprints
	}
}

// send produces n orders whose only field is the id, with the given timestamp.
func (s *scene) send(n int, id string, at time.Time) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: s.name, Key: []byte("k"), Value: fmt.Appendf(nil, `{"order_id":%q}`, id), Timestamp: at}
	}
	if err := client.ProduceSync(s.ctx, records...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// TestDuplicates expects an order that is sent again after 1 s or 23 h 59 min to be a duplicate, and after 24 h 1 min
// to be a new row, even if the member restarts, is killed, or loses the partition to another member in between.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s, database := newScene(t, 1), ""
			if store == "postgres" {
				server, err := lab.StartPostgres(s.ctx, s.dir)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = server.Stop() })
				database = server.URL
			}
			identified := s.identified(database)
			first := time.Now().Add(-48 * time.Hour).Truncate(time.Millisecond)

			m := s.start(identified)
			s.send(1, "e-1", first)
			s.awaitPosition(0, 1)
			m.lints()
			m.drain()
			if database != "" {
				s.processed(database, "e-1", 0)
			}

			m = s.start(identified)
			s.send(1, "e-1", first.Add(time.Second))
			s.awaitPosition(0, 2)
			m.awaitDuplicates(1, "behind a restart")
			m.kill()

			m = s.start(identified)
			s.send(1, "e-1", first.Add(24*time.Hour-time.Minute))
			s.awaitPosition(0, 3)
			m.awaitDuplicates(1, "behind kill -9")

			other := s.start(identified)
			other.await("it has joined", func(r report) bool { return r.Joined })
			m.drain()
			s.send(1, "e-1", first.Add(24*time.Hour+time.Minute))
			s.awaitPosition(0, 4)
			s.send(1, "e-1", first.Add(24*time.Hour+2*time.Minute))
			s.awaitPosition(0, 5)
			other.awaitDuplicates(1, "behind a rebalance")
			other.drain()

			var offsets []int64
			for _, c := range s.commits() {
				for _, add := range c.Adds {
					var stats struct {
						Min struct {
							Offset int64 `json:"_kafka_offset"`
						} `json:"minValues"`
					}
					if err := json.Unmarshal([]byte(add.Stats), &stats); err != nil {
						t.Fatal(err)
					}
					offsets = append(offsets, stats.Min.Offset)
				}
			}
			if n := tablelog.Rows(s.commits()); n != 2 || !slices.Equal(offsets, []int64{0, 3}) {
				t.Errorf("%d rows, of offsets %v; want those of 0 and 3", n, offsets)
			}
			path, _ := s.config(identified)
			checked := "group "
			if database != "" {
				checked = "reachable"
			}
			for args, want := range map[string]string{
				"verify --kafka":     "DUPLICATES",
				"fingerprints stats": ":0  1 ",
				"check":              checked,
			} {
				if code, text := s.command(append(strings.Fields(args), "--config", path)...); code != 0 || !strings.Contains(text, want) {
					t.Errorf("connector %s: exit code %d: %s", args, code, text)
				}
			}
		})
	}
}

// processed looks up an order by its id in the table processed_events of the database, as other programs may. It fails
// the test unless the row has the offset want.
func (s *scene) processed(database, id string, want int64) {
	s.t.Helper()
	conn, err := pgx.Connect(s.ctx, database)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(s.ctx)
	var offset int64
	if err := conn.QueryRow(s.ctx, `SELECT "offset" FROM processed_events WHERE event_id = $1`, id).Scan(&offset); err != nil || offset != want {
		s.t.Errorf("processed_events has %s at offset %d, %v; want offset %d", id, offset, err, want)
	}
}

// TestIdenticalPayloadsWithoutIdentity expects each of several equal records to become a row, since the configuration
// has no identity.
func TestIdenticalPayloadsWithoutIdentity(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	s.send(1000, "e-1", time.Now())
	s.untilCurrent()
	if n := tablelog.Rows(s.commits()); n != 1000 {
		t.Errorf("%d rows of 1000 records", n)
	}
	if text := s.wants(0, "verify", "--kafka"); strings.Contains(text, "DUPLICATES") {
		t.Error(text)
	}
}

// awaitDuplicates waits until the member's counter of duplicates is want. It must wait because the member raises the
// counter shortly after its commit.
func (m *member) awaitDuplicates(want float64, when string) {
	m.s.t.Helper()
	m.s.await(fmt.Sprintf("%s has left %v duplicates out, %s", m.Name, want, when), func() (bool, error) {
		return m.metric("sluice_duplicates_total") == want, nil
	})
}
