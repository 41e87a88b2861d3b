package kafka

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/connector"
)

// Two topics on two brokers, every codec: all records in order, many partitions per request.
func TestLogReads(t *testing.T) {
	inBubble(t, func(t *testing.T, w *scene) {
		w.create("a", 6)
		w.create("b", 3)
		codecs := []kgo.CompressionCodec{
			kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
		}
		for p := range int32(6) {
			for round := range 3 {
				w.produce("a", p, 100, fmt.Sprint("a", round, "-"), kgo.ProducerBatchCompression(codecs[int(p)%5]))
			}
		}
		w.produce("b", 2, 5, "b")
		most := 0
		w.fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			n := 0
			for _, t := range req.(*kmsg.FetchRequest).Topics {
				n += len(t.Partitions)
			}
			most = max(most, n)
			return nil, nil, false
		})
		r := w.read(LogConfig{})
		for _, p := range r.partitions("a", "b") {
			r.from(p, 0, -1)
		}
		began := time.Now()
		r.until(time.Minute, func() bool { return r.records() == 6*300+5 && r.answers >= 9 })
		t.Logf("read in %v of virtual time, %d answers", time.Since(began), r.answers)
		for _, p := range r.partitions("a") {
			want := slices.Concat(tagged("a0-", 100), tagged("a1-", 100), tagged("a2-", 100))
			if !slices.Equal(r.values(p), want) || r.at[p].Next != 300 {
				t.Errorf("%v: %d records, next %d", p, len(r.got[p]), r.at[p].Next)
			}
			if b := r.last[p].Bounds; b.HighWatermark != 300 || b.LastStable != 300 || b.LogStart != 0 || b.DivergedAt != -1 {
				t.Errorf("%v: %+v", p, b)
			}
		}
		if most < 3 {
			t.Errorf("%d partitions in a request at most", most)
		}
		empty := r.partitions("b")[0]
		if a := r.last[empty]; a.Next != 0 || a.Records != nil || a.Bounds.DivergedAt != -1 {
			t.Errorf("an empty partition: %+v", a)
		}
	})
}

var _ = kfake.Ports
var _ connector.Log = (*Log)(nil)
