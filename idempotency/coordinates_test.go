package idempotency_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"sluice/idempotency"
)

func TestAppIDIsWhatOthersExpect(t *testing.T) {
	id, err := idempotency.ParseTopicID("MDEyMzQ1Njc4OWFiY2RlZg")
	if err != nil {
		t.Fatal(err)
	}
	p := idempotency.Partition{Cluster: "4L6g3nShT-eMCtK--X86sw", Topic: "orders:eu", TopicID: id, ID: 7}
	if got, want := p.AppID("my pipe"), "kd1:my+pipe:4L6g3nShT-eMCtK--X86sw:orders%3Aeu:MDEyMzQ1Njc4OWFiY2RlZg:7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := idempotency.TableAppID("p", "a-b"), "kd1:p:table:a-b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := (idempotency.Partition{Topic: "t"}).AppID("p"); got != "kd1:p:-:t:-:0" {
		t.Errorf("unknown ids: %s", got)
	}
}

func TestAppIDsRoundTripAndNeverCollide(t *testing.T) {
	partition := func(t *rapid.T) (string, idempotency.Partition) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "-", ":", "%", "table", "kd1"}))
		p := idempotency.Partition{Cluster: text.Draw(t, "cluster"), Topic: text.Draw(t, "topic"), ID: rapid.Int32Range(0, 1<<31-1).Draw(t, "id")}
		copy(p.TopicID[:], rapid.SliceOfN(rapid.Byte(), 0, 16).Draw(t, "topic id"))
		return text.Draw(t, "pipeline"), p
	}
	rapid.Check(t, func(t *rapid.T) {
		pipeA, a := partition(t)
		pipeB, b := partition(t)
		got, err := idempotency.ParseAppID(a.AppID(pipeA))
		if err != nil || got.Pipeline != pipeA || got.Partition != a || got.TableID != "" {
			t.Fatalf("%q %+v came back as %+v, %v", pipeA, a, got, err)
		}
		if same := a == b && pipeA == pipeB; (a.AppID(pipeA) == b.AppID(pipeB)) != same {
			t.Fatalf("%q %+v and %q %+v: %s", pipeA, a, pipeB, b, a.AppID(pipeA))
		}
		if _, err := idempotency.ParseAppID(a.NewestAppID(pipeA)); !errors.Is(err, idempotency.ErrNewest) {
			t.Fatalf("%q: %v", a.NewestAppID(pipeA), err)
		}
		if _, err := idempotency.ParseAppID(a.EpochAppID(pipeA)); !errors.Is(err, idempotency.ErrEpoch) {
			t.Fatalf("%q: %v", a.EpochAppID(pipeA), err)
		}
		if _, err := idempotency.ParseAppID(a.OriginsAppID(pipeA)); !errors.Is(err, idempotency.ErrOrigins) {
			t.Fatalf("%q: %v", a.OriginsAppID(pipeA), err)
		}
		if position, ok := idempotency.EpochOf(a.EpochAppID(pipeA)); !ok || position != a.AppID(pipeA) {
			t.Fatalf("%q stands beside %q, %t", a.EpochAppID(pipeA), position, ok)
		}
		for _, other := range []string{a.AppID(pipeA), a.NewestAppID(pipeA), idempotency.TableAppID(pipeA, "epoch")} {
			if position, ok := idempotency.EpochOf(other); ok {
				t.Fatalf("%q is taken for the epoch of %q", other, position)
			}
		}
		table, err := idempotency.ParseAppID(idempotency.TableAppID(pipeA, a.Topic))
		if err != nil || table.Pipeline != pipeA || table.TableID != a.Topic {
			t.Fatalf("table %q came back as %+v, %v", a.Topic, table, err)
		}
	})
}

func TestParseAppIDRefuses(t *testing.T) {
	for _, s := range []string{"", "spark-query-7", "kd2:p:table:x"} {
		if _, err := idempotency.ParseAppID(s); !errors.Is(err, idempotency.ErrForeign) {
			t.Errorf("%q: %v, want ErrForeign", s, err)
		}
	}
	for _, s := range []string{"kd1", "kd1:p", "kd1:p:c:t:x:0", "kd1:p:c:t:-:-1", "kd1:p:c:t:-:x", "kd1:p:c:t:-:99999999999", "kd1:%zz:c:t:-:0"} {
		if _, err := idempotency.ParseAppID(s); err == nil || errors.Is(err, idempotency.ErrForeign) {
			t.Errorf("%q: %v, want an error that says it is damaged", s, err)
		}
	}
}

func TestCoordinatesForPeople(t *testing.T) {
	c := idempotency.Coordinates{Partition: idempotency.Partition{Topic: "orders", ID: 3}, Offset: 17}
	if c.String() != "orders:3@17" || c.Partition.String() != "orders:3" {
		t.Errorf("got %v, %v", c, c.Partition)
	}
}
