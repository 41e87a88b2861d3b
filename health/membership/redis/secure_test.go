package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"

	"sluice/secure"
	"sluice/test/certs"
)

const password = "s3cret-of-the-test"

// TestCheck: URLs that would expose the password are refused, others are accepted.
func TestCheck(t *testing.T) {
	ca := certs.NewCA(t, "test").File(t)
	for _, tt := range []struct {
		o    Options
		want string // a part of the error's text; "" if there is no error
	}{
		{Options{URL: "rediss://u:" + password + "@h"}, ""},
		{Options{URL: "redis://u:" + password + "@h"}, "without TLS: write rediss://"},
		{Options{URL: "redis://:" + password + "@h"}, "h:6379 without TLS"},
		{Options{URL: "redis://h?password=" + password}, ""}, // go-redis does not use this parameter
		{Options{URL: "rediss://u:" + password + "@h?skip_verify=true"}, "remove skip_verify"},
		{Options{URL: "rediss://u:" + password + "@h?skip_verify=true", CAFile: ca}, "remove skip_verify"},
		{Options{URL: "redis://h"}, ""},
		{Options{URL: "redis://u:" + password + "@127.0.0.1:7"}, ""},
		{Options{URL: "redis://u:" + password + "@[::1]"}, ""},
		{Options{URL: "redis://u:" + password + "@localhost"}, ""},
		{Options{URL: "redis://u:" + password + "@h", InsecurePlaintext: true}, ""},
		{Options{URL: "rediss://u:" + password + "@h", CAFile: ca}, ""},
		{Options{URL: "redis://u:" + password + "@h", CAFile: ca}, "ca_file does not count"},
		{Options{URL: "rediss://u:" + password + "@h", CAFile: ca + ".none"}, "ca_file"},
	} {
		err := tt.o.Check()
		if strings.Contains(tt.o.URL, "?password=") {
			if err == nil || strings.Contains(err.Error(), password) {
				t.Errorf("%+v: %v", tt.o, err)
			}
			continue
		}
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), password)) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	if err := (Options{URL: "redis://u:p@h"}).Check(); !errors.Is(err, secure.ErrPlaintext) {
		t.Error(err)
	}
}

// TestPasswordStays: a server without TLS, or with a certificate that cannot be trusted, never gets the password.
func TestPasswordStays(t *testing.T) {
	own, other := certs.NewCA(t, "own"), certs.NewCA(t, "other")
	ca := own.File(t)
	const url = "rediss://u:" + password + "@redis.example:6379"
	for _, tt := range []struct {
		name        string
		o           Options
		certificate *tls.Config
		gets        bool
	}{
		{"no TLS", Options{URL: url, CAFile: ca}, nil, false},
		{"another authority", Options{URL: url, CAFile: ca}, other.Server(t, "redis.example"), false},
		{"another host", Options{URL: url, CAFile: ca}, own.Server(t, "other.example"), false},
		{"authority of the system", Options{URL: url}, own.Server(t, "redis.example"), false},
		{"trusted", Options{URL: url, CAFile: ca}, own.Server(t, "redis.example"), true},
		{"insecure", Options{URL: "redis://u:" + password + "@redis.example", InsecurePlaintext: true}, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			heard := make(chan string, 100)
			address := liar{heard: heard}.listen(t, tt.certificate)
			tt.o.dial = func(ctx context.Context, network, name string) (net.Conn, error) {
				if name != "redis.example:6379" {
					t.Errorf("dials %s", name)
				}
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
			store, err := Open(tt.o)
			if err != nil {
				t.Fatal(err)
			}
			_, err = store.Members(t.Context())
			_ = store.Close()
			var all []string
			for len(heard) > 0 {
				all = append(all, <-heard)
			}
			if got := strings.Contains(strings.Join(all, " "), password); got != tt.gets || err == nil { // every call fails, because the server has no scripts
				t.Errorf("the server got %q (%v); the password: %v, want %v", all, err, got, tt.gets)
			}
		})
	}
}
