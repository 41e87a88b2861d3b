//go:build lab

package objstore_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// TestMinIO runs the conformance suite on a real server. SLUICE_TEST_S3 is its URL; SLUICE_TEST_S3_ACCESS_KEY and
// SLUICE_TEST_S3_SECRET_KEY are its keys, by default minioadmin.
func TestMinIO(t *testing.T) {
	c := minio(t)
	client := s3.New(s3.Options{
		BaseEndpoint: &c.Endpoint, Region: c.Region, UsePathStyle: true, HTTPClient: new(http.Client),
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, ""),
	})
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &c.Bucket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { empty(t, client, c) })
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		t.Helper()
		c := c
		c.Prefix = t.Name()
		return openS3(t, c)
	})
	for name, do := range operations {
		t.Run("NoSuchBucket/"+name, func(t *testing.T) {
			c := c
			c.Bucket = "there-is-no-such-bucket"
			if err := do(t.Context(), openS3(t, c)); objstore.Outcome(err) != "refused" {
				t.Error(err)
			}
		})
		t.Run("WrongKey/"+name, func(t *testing.T) {
			c := c
			c.SecretKey = "wrong"
			if err := do(t.Context(), openS3(t, c)); objstore.Outcome(err) != "refused" {
				t.Error(err)
			}
		})
	}
}

// minio returns the configuration for the server of TestMinIO, with a bucket that does not exist yet.
func minio(t *testing.T) objstore.S3Config {
	t.Helper()
	endpoint := os.Getenv("SLUICE_TEST_S3")
	if endpoint == "" {
		t.Fatal("SLUICE_TEST_S3 must be the URL of an S3 server")
	}
	key := func(name string) string {
		if v := os.Getenv(name); v != "" {
			return v
		}
		return "minioadmin"
	}
	return objstore.S3Config{
		Bucket:   "sluice-conformance-" + strings.ToLower(time.Now().UTC().Format("20060102t150405.000000")),
		Endpoint: endpoint, Region: "us-east-1", PathStyle: true,
		AccessKey: key("SLUICE_TEST_S3_ACCESS_KEY"), SecretKey: key("SLUICE_TEST_S3_SECRET_KEY"),
	}
}

// TestMinIO_Explain compares the texts and hints for errors of a real server. s3failed_test.go has those for other
// servers.
func TestMinIO_Explain(t *testing.T) {
	c := minio(t)
	id := regexp.MustCompile(`\(request id [0-9A-F]{16}\)`)
	for name, tt := range map[string]struct {
		change            func(*objstore.S3Config)
		code, said, wants string
	}{
		"missing bucket": {
			func(*objstore.S3Config) {}, "NoSuchBucket (404)", "The specified bucket does not exist",
			`create bucket "there-is-no-such-bucket", or correct its name in storage.url`,
		},
		"unknown key": {
			func(c *objstore.S3Config) { c.AccessKey = "nobody-knows-it" }, "InvalidAccessKeyId (403)", "The Access Key Id you provided does not exist in our records.",
			"correct storage.s3.access_key, which the store does not know, or storage.s3.endpoint if the keys are another store's",
		},
		"bad signature": {
			func(c *objstore.S3Config) { c.SecretKey = "wrong" }, "SignatureDoesNotMatch (403)",
			"The request signature we calculated does not match the signature you provided. Check your key and signing method.",
			"correct storage.s3.secret_key, which does not belong to the access key. If it does, a proxy changes requests on their way",
		},
	} {
		for operation, do := range operations {
			if operation == "head" && name != "missing bucket" {
				continue // the response to a HEAD has no body, so no code
			}
			t.Run(name+"/"+operation, func(t *testing.T) {
				c := c
				c.Bucket = "there-is-no-such-bucket"
				tt.change(&c)
				key := "key"
				if operation == "list" {
					key = "k"
				}
				err := do(t.Context(), openS3(t, c))
				what, hint := objstore.Explain(err)
				want := fmt.Sprintf(`%s %s: bucket "%s" at %s: %s: %s (id)`, operation, key, c.Bucket, c.Endpoint, tt.code, tt.said)
				if got := id.ReplaceAllString(what, "(id)"); got != want || hint != tt.wants {
					t.Errorf("%s: %s", what, hint)
				}
				oneLine(t, err)
				err = objstore.SelfTest(t.Context(), openS3(t, c))
				if n := strings.Count(err.Error(), tt.said); n != 1 {
					t.Errorf("the self-test says %d times: %v", n, err)
				}
			})
		}
	}
}

// empty deletes the bucket with its objects.
func empty(t *testing.T, client *s3.Client, c objstore.S3Config) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	s := openS3(t, c)
	for i, err := range s.List(ctx, "", "") {
		if err == nil {
			err = s.Delete(ctx, i.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: aws.String(c.Bucket)}); err != nil {
		t.Error(err)
	}
}
