package config

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestBounds: the least and the greatest value of a range are allowed; the values next to them are refused.
func TestBounds(t *testing.T) {
	var (
		d time.Duration
		n int
		b int64
		f float64
	)
	for _, c := range []struct {
		name    string
		value   value
		good    []string
		refused []string
	}{
		{"duration", duration(&d, time.Second, time.Minute), []string{"1s", "1000ms", "1m", "60s", "1m0s", "0.5m"}, []string{"999ms", "1m1ns", "0", "-1s", ""}},
		{"number", count(&n, 1, 10), []string{"1", "10", "+3"}, []string{"0", "11", "-1", "1.0", "0x1", "1e0", " 1", ""}},
		{"size", size(&b, 1024, 2<<20), []string{"1KiB", "1024B", "2MiB", "2048KiB"}, []string{"1023B", "2049KiB", "-1KiB", "KiB", "1 KiB", "1kib", ""}},
		{"percentage", percent(&f, 0.1, 0.5), []string{"10%", "50%", "12.5%"}, []string{"9.9%", "50.1%", "NaN%", "%", "0.2", "20", "Inf%", ""}},
	} {
		for _, s := range c.good {
			if err := c.value.set([]string{s}); err != nil {
				t.Errorf("%s %q: %v", c.name, s, err)
			}
		}
		for _, s := range c.refused {
			if err := c.value.set([]string{s}); err == nil {
				t.Errorf("%s %q is taken as %s", c.name, s, c.value.node().Value)
			}
		}
	}
}

// TestValues_RefusedKeepsOld: if a text is refused, the old value stays.
func TestValues_RefusedKeepsOld(t *testing.T) {
	d := 3 * time.Second
	v := duration(&d, time.Second, time.Minute)
	if err := v.set([]string{"2h"}); err == nil || d != 3*time.Second {
		t.Error(err, d)
	}
	l := []string{"a:1"}
	v = list(&l, "host:port", brokerAddress)
	if err := v.set([]string{"b:1", "c"}); err == nil || l[0] != "a:1" {
		t.Error(err, l)
	}
}

// TestFormats: the printed form of a value is read back as the same value.
func TestFormats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "duration"))
		if rapid.Bool().Draw(t, "whole") {
			d = d.Round(time.Minute)
		}
		if got, err := parseDuration(FormatDuration(d), 0); err != nil || got != d {
			t.Fatalf("%s: %s %v", FormatDuration(d), got, err)
		}
		n := rapid.Int64Range(0, 1<<40).Draw(t, "size") << rapid.IntRange(0, 20).Draw(t, "shift")
		if got, err := parseSize(FormatSize(n), 0); err != nil || got != n {
			t.Fatalf("%s: %d %v", FormatSize(n), got, err)
		}
		share := float64(rapid.IntRange(0, 10_000).Draw(t, "share")) / 10_000
		var f float64
		if err := percent(&f, 0, 1).set([]string{formatPercent(share)}); err != nil || f-share > 1e-9 || share-f > 1e-9 {
			t.Fatalf("%s: %f %v", formatPercent(share), f, err)
		}
	})
}

func TestNearest(t *testing.T) {
	here := []string{"brokers", "group", "rack", "session"}
	all := []string{"kafka.brokers", "kafka.group", "queue.pause_at", "defaults.commit.every"}
	for name, want := range map[string]string{
		"broker": "brokers", "Brokers": "brokers", "gruop": "group", "bootstrap-servers": "brokers", "pause_at": "queue.pause_at",
		"every": "defaults.commit.every", "xyzzy": "", "": "",
	} {
		if got := nearest(name, here, all); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"gruop", "group", 1}, {"levl", "level", 1}, {"kitten", "sitting", 3}, {"abc", "abc", 0}} {
		if got := Distance(c.a, c.b); got != c.want || Distance(c.b, c.a) != c.want {
			t.Errorf("%s %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
