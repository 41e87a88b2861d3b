//go:build lab

package e2e

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"sluice/test/lab"
)

// TestThreeBrokers runs tests one after the other on three brokers. Each test finds all brokers running and leaves them
// so.
func TestThreeBrokers(t *testing.T) {
	t.Parallel()
	dir, err := folder("three")
	if err != nil {
		t.Fatal(err)
	}
	c, err := lab.StartKafkaCluster(t.Context(), lab.KafkaClusterOptions{Dir: dir, Version: os.Getenv("E2E_KAFKA")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *lab.KafkaCluster)
	}{
		{"ComeAndGo", testBrokersComeAndGo},
		{"Hang", testBrokerHangs},
		{"UncleanElection", testUncleanElection},
		{"Storm", testStorm},
		{"LettersWait", testLettersWaitForABroker},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, c) })
		whole(t, c)
	}
}

// whole starts the brokers that a failed test has left stopped, and resumes those that it has left paused.
func whole(t *testing.T, c *lab.KafkaCluster) {
	t.Helper()
	for _, k := range c.Brokers {
		if k.Running() {
			if err := k.Resume(); err != nil {
				t.Fatal(err)
			}
		} else if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// newSceneOn returns a scene whose topic has a replica on each broker of a cluster. The brokers acknowledge a record
// once it is on at least two of them.
func newSceneOn(t *testing.T, c *lab.KafkaCluster, partitions int32) *scene {
	t.Helper()
	s := newSceneAt(t, c.Addrs()...)
	if err := c.CreateTopic(s.ctx, s.name, partitions, map[string]string{"min.insync.replicas": "2"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// testBrokersComeAndGo moves leaders and stops and kills brokers while a producer sends records. Rows must arrive while
// a broker is away, and in the end each record must be one row.
func testBrokersComeAndGo(t *testing.T, c *lab.KafkaCluster) {
	t.Helper()
	s := newSceneOn(t, c, 6)
	members := []*member{s.start(), s.start(inRack("r2"))}
	for _, m := range members {
		m.awaitReady()
	}
	end := s.stream(5000)
	move := func(n int) {
		for range n {
			partition := s.random.Int32N(6)
			replicas := []int32{1, 2, 3}
			s.random.Shuffle(3, func(i, j int) { replicas[i], replicas[j] = replicas[j], replicas[i] })
			if err := c.Place(s.ctx, s.name, partition, replicas...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, k := range c.Brokers {
		move(7) // 7 moves before each of the 3 brokers stops, 21 in all
		var err error
		if i == 1 {
			err = k.Kill()
		} else {
			err = k.Stop()
		}
		if err != nil {
			t.Fatal(err)
		}
		away := time.Second
		if i == 2 {
			away = awayOfThree
		}
		before := s.rows()
		time.Sleep(away) // the test needs a broker that is away for this time
		s.awaitRows(before + 1)
		if err := k.Start(s.ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.InSync(s.ctx, s.name); err != nil {
			t.Fatal(err)
		}
	}
	if err := lab.Until(s.ctx, func() (bool, error) { return s.ledger.Len() >= recordsOfThree, nil }); err != nil {
		t.Fatal(err)
	}
	end()
	s.awaitOthers()
	for _, m := range members {
		t.Logf("%s: %v records fetched, %v fences", m.Name, m.metric("sluice_fetch_records_total"), m.metric("sluice_fenced_total"))
		m.drain()
	}
	s.check("--readers", "duckdb,polars")
}

// inRack makes a member read from the replicas in a rack.
func inRack(rack string) setting { return func(c *settings) { c.rack = rack } }

// testBrokerHangs pauses the broker that coordinates the group and leads partitions. Meanwhile the group must get
// another coordinator, and all partitions must continue.
func testBrokerHangs(t *testing.T, c *lab.KafkaCluster) {
	t.Helper()
	s := newSceneOn(t, c, 6)
	for partition := range int32(6) {
		id := partition%3 + 1
		if err := c.Place(s.ctx, s.name, partition, id, id%3+1, (id+1)%3+1); err != nil {
			t.Fatal(err)
		}
	}
	members := []*member{s.start(), s.start()}
	for _, m := range members {
		m.awaitReady()
	}
	end := s.stream(1000)
	s.awaitRows(1000)
	hung, err := c.Coordinator(s.ctx, s.name)
	if err != nil {
		t.Fatal(err)
	}
	if err := hung.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	resume := sync.OnceValue(hung.Resume)
	t.Cleanup(func() { _ = resume() })
	generations := func(m *member) float64 { return m.metric("sluice_group_generations_total") }
	joined := []float64{generations(members[0]), generations(members[1])}
	for i, m := range members {
		m.await("the member has joined without the broker", func(r report) bool {
			return r.Joined && len(r.Partitions) == 3 && generations(m) > joined[i]
		})
	}
	before := s.positions()
	for partition := range int32(6) {
		s.awaitPosition(partition, before[partition]+100)
	}
	t.Logf("joined again %v after broker %d hung", time.Since(began).Round(time.Second), hung.ID)
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	if err := c.InSync(s.ctx, s.name); err != nil {
		t.Fatal(err)
	}
	end()
	s.awaitOthers()
	for _, m := range members {
		m.drain()
	}
	s.check("--readers", "polars")
}

// testUncleanElection makes a replica that lacks acknowledged records the leader, and produces other records at their
// offsets. The member must hold the partition at its position and read none of the new records. This must hold for a
// member that runs meanwhile and for one that is started afterwards.
func testUncleanElection(t *testing.T, c *lab.KafkaCluster) {
	t.Helper()
	for name, running := range map[string]bool{"running": true, "resumed": false} {
		t.Run(name, func(t *testing.T) {
			s := newSceneAt(t, c.Addrs()...)
			if err := c.CreateTopic(s.ctx, s.name, 3, map[string]string{"min.insync.replicas": "1"}); err != nil {
				t.Fatal(err)
			}
			for partition, replicas := range [][]int32{{1, 2}, {3, 2}, {2, 3}} {
				if err := c.Place(s.ctx, s.name, int32(partition), replicas...); err != nil {
					t.Fatal(err)
				}
			}
			m := s.start()
			s.produce(3000)
			s.awaitOthers()
			behind, ahead := c.Broker(2), c.Broker(1)
			if err := behind.Stop(); err != nil {
				t.Fatal(err)
			}
			s.produce(3000)
			s.awaitOthers()
			at := s.positions()[0]
			if !running {
				m.drain()
			}
			if err := ahead.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := behind.Start(s.ctx); err != nil {
				t.Fatal(err)
			}
			if err := c.ElectUnclean(s.ctx, s.name, 0, behind.ID); err != nil {
				t.Fatal(err)
			}
			// From here on, records of partition 0 must not reach the table, so the ledger no longer expects them.
			s.ledger.Leave(0)
			s.produce(9000)
			if end, err := c.End(s.ctx, s.name, 0); err != nil || end <= at {
				t.Fatalf("the new leader's log ends at %d, the position is %d, want it beyond: %v", end, at, err)
			}
			if err := ahead.Start(s.ctx); err != nil {
				t.Fatal(err)
			}
			if err := c.InSync(s.ctx, s.name); err != nil {
				t.Fatal(err)
			}
			if !running {
				m = s.start()
			}
			if offset := m.awaitHold(0, "truncated"); offset != at {
				t.Errorf("held at %d, want %d", offset, at)
			}
			s.awaitOthers(0)
			if position := s.positions()[0]; position != at {
				t.Errorf("the held position moved from %d to %d", at, position)
			}
			m.drain()
			s.wants(1, "run", "--until-current")
			s.checkSets("--readers", "polars", "--held", fmt.Sprintf("0:%d", at))
		})
	}
}
