package app

import (
	"net"
	"strings"
	"testing"

	"sluice/internal/config"
	"sluice/internal/laketest"
)

// TestAdvertiser: an address of this machine alone is never registered, and a search that found nothing is repeated.
func TestAdvertiser(t *testing.T) {
	listening := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 8080} }
	for name, c := range map[string]struct {
		set    string
		listen net.Addr
		want   string
		warns  bool
	}{
		"set":                 {"pod-7.sluice:80", listening("::"), "http://pod-7.sluice:80", false},
		"set, on loopback":    {"gateway:80", listening("127.0.0.1"), "http://gateway:80", false},
		"none":                {config.NoAddress, listening("10.1.2.3"), "", false},
		"no health server":    {config.AutoAddress, nil, "", false},
		"the listening one":   {config.AutoAddress, listening("10.1.2.3"), "http://10.1.2.3:8080", false},
		"of IPv6":             {config.AutoAddress, listening("fd00::2"), "http://[fd00::2]:8080", false},
		"loopback":            {config.AutoAddress, listening("127.0.0.1"), "", true},
		"loopback of IPv6":    {config.AutoAddress, listening("::1"), "", true},
		"link-local":          {config.AutoAddress, listening("169.254.1.1"), "", true},
		"any, brokers here":   {config.AutoAddress, listening("0.0.0.0"), "", true},
		"any of IPv6, as one": {config.AutoAddress, listening("::"), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			logger, log := laketest.NewLog()
			a := &advertiser{config: &config.Config{}, listen: c.listen, logger: logger}
			a.config.Members.Address, a.config.Kafka.Brokers = c.set, []string{"127.0.0.1:9092", "[::1]:9092", "no port"}
			for range 2 {
				if got := a.address(t.Context()); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			}
			if got := strings.Count(log.String(), "set members.address to host:port"); (got == 1) != c.warns || got > 1 {
				t.Errorf("%d warnings: %s", got, log)
			}
		})
	}
}
