package membership_test

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/health/membership"
)

func TestCheckAddress(t *testing.T) {
	for address, want := range map[string]bool{
		"http://10.1.2.3:8080": true, "https://pod-7.sluice.svc.cluster.local:8443": true, "http://[fd00::2]:8080": true, "http://node_1:1": true,
		"http://192.168.0.1:65535": true, "http://kafka-0:8080": true,
		"http://" + strings.Repeat("a.", 140) + "b:8080": true,

		"": false, "10.1.2.3:8080": false, "//10.1.2.3:8080": false, "ftp://h:1": false, "HTTP://h:1": false, "file:///etc/passwd": false, "http:h:1": false,
		"http://h": false, "http://h:": false, "http://h:0": false, "http://h:65536": false, "http://h:080": false, "http://h:-1": false, "http://:8080": false,
		"http://h:8080/": false, "http://h:8080/internal/v1/pause": false, "http://h:8080?x": false, "http://h:8080?": false, "http://h:8080#x": false, "http://h:8080#": false,
		"http://user:password@h:8080": false, "http://user@h:8080": false, "http://@h:8080": false,
		"http://127.0.0.1:8080": false, "http://127.9.9.9:1": false, "http://[::1]:8080": false, "http://localhost:8080": false, "http://LocalHost:8080": false,
		"http://x.localhost:8080": false, "http://[::ffff:127.0.0.1]:8080": false, "http://0.0.0.0:8080": false, "http://[::]:8080": false,
		"http://169.254.169.254:80": false, "http://[fe80::1]:80": false, "http://[fe80::1%25eth0]:80": false, "http://[fd00::2%25eth0]:80": false,
		"http://224.0.0.1:80": false, "http://255.255.255.255:80": false, "http://2130706433:80": false, "http://127.1:80": false, "http://0177.0.0.1:80": false,
		"http://h\r\nHost: x:80": false, "http://h h:80": false, "http://h%0a:80": false, "http://größe:80": false, "http://..:80": false, "http://.a:80": false,
		"http://a..b:80": false, " http://h:80": false, "http://h:80 ": false, "http://h:80\x00": false,
		"http://" + strings.Repeat("a", 300) + ":80": false,
	} {
		if err := membership.CheckAddress(address); (err == nil) != want {
			t.Errorf("%q: %v", address, err)
		} else if err != nil && address != "" && strings.Contains(err.Error(), "password") {
			t.Errorf("the error quotes the address: %v", err)
		}
	}
}

func TestDialable(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "192.168.1.1": true, "fd00::1": true, "2001:db8::1": true, "8.8.8.8": true,
		"127.0.0.1": false, "127.255.0.1": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false, "169.254.169.254": false,
		"::ffff:169.254.169.254": false, "fe80::1": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false,
	} {
		if got := membership.Dialable(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if membership.Dialable(netip.Addr{}) {
		t.Error("no address is dialable")
	}
}
