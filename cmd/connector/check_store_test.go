package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/admin"
	"sluice/test/certs"
)

// TestCheckStore expects one finding for a request that the store refuses, with the store's error code and a hint.
func TestCheckStore(t *testing.T) {
	const nowhere = "http://127.0.0.1:1"
	const key = `put-if-absent _sluice/selftest/KEY: bucket "lake" at ENDPOINT: `
	for _, tt := range []struct {
		name          string
		status        int
		code, message string
		storage       string // keys of storage.s3 that replace those which lead to the test's server
		text, hint    string
	}{
		{
			"missing bucket", 404, "NoSuchBucket", "The specified bucket does not exist", "",
			key + "NoSuchBucket (404): The specified bucket does not exist (request id 1)",
			`create bucket "lake", or correct its name in storage.url`,
		},
		{
			"bad signature", 403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.\n\nCheck your key.", "",
			key + "SignatureDoesNotMatch (403): The request signature we calculated does not match the signature you provided. Check your key. (request id 1)",
			"correct storage.s3.secret_key, which does not belong to the access key. If it does, a proxy changes requests on their way",
		},
		{
			"unknown key", 403, "InvalidAccessKeyId", "The Access Key Id you provided does not exist in our records.", "",
			key + "InvalidAccessKeyId (403): The Access Key Id you provided does not exist in our records. (request id 1)",
			"correct storage.s3.access_key, which the store does not know, or storage.s3.endpoint if the keys are another store's",
		},
		{
			"denied", 403, "AccessDenied", "Access Denied.", "",
			key + "AccessDenied (403): Access Denied. (request id 1)",
			"allow s3:PutObject on arn:aws:s3:::lake/tables/*, in the policy of the user or role that the keys belong to and in that of the bucket",
		},
		{
			"down", 503, "SlowDown", "Please reduce your request rate.", "",
			key + "SlowDown (503): Please reduce your request rate. (request id 1)",
			"check the log of the store, or of this host if it is a directory",
		},
		{
			"no server", 0, "", "", "endpoint: " + nowhere,
			strings.Replace(key, "ENDPOINT", nowhere, 1) + "request not sent: dial tcp 127.0.0.1:1: connect: connection refused",
			"start the server, or correct host and port in storage.s3.endpoint",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(tt.status)
				_, _ = fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s</Message><RequestId>%d</RequestId></Error>",
					tt.code, tt.message, requests.Add(1))
			}))
			t.Cleanup(server.Close)
			storage := tt.storage
			if storage == "" {
				storage = "endpoint: " + server.URL
			}
			dir := t.TempDir()
			path := certs.Write(t, dir, "config.yaml", fmt.Appendf(nil, "pipeline: p\nkafka: {brokers: [127.0.0.1:1]}\n"+
				"storage: {url: \"s3://lake/tables\", s3: {%s, path_style: true, access_key: AKIAIOSFODNN7EXAMPLE, secret_key: secret}}\n"+
				"defaults: {schema: \"n int\"}\ntopics: {orders: {}}\n", storage))
			_, all := checkFound(t, 3, path)
			var got []admin.Finding
			for _, f := range all {
				if f.Area == "storage" {
					f.Text = strings.ReplaceAll(regexp.MustCompile(`selftest/\w+`).ReplaceAllString(f.Text, "selftest/KEY"), server.URL, "ENDPOINT")
					f.Text = regexp.MustCompile(`request id \d+`).ReplaceAllString(f.Text, "request id 1")
					got = append(got, f)
				}
			}
			if d := cmp.Diff([]admin.Finding{{Status: admin.StatusFailed, Area: "storage", Subject: "s3://lake/tables", Text: tt.text, Hint: tt.hint}}, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
