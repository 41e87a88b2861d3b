//go:build lab

package objstore_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// TestMinIO holds a real server against the contract: SLUICE_TEST_S3 is its URL, SLUICE_TEST_S3_ACCESS_KEY and
// SLUICE_TEST_S3_SECRET_KEY its keys (minioadmin).
func TestMinIO(t *testing.T) {
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
	c := objstore.S3Config{
		Bucket:   "sluice-conformance-" + strings.ToLower(time.Now().UTC().Format("20060102t150405.000000")),
		Endpoint: endpoint, Region: "us-east-1", PathStyle: true,
		AccessKey: key("SLUICE_TEST_S3_ACCESS_KEY"), SecretKey: key("SLUICE_TEST_S3_SECRET_KEY"),
	}
	client := s3.New(s3.Options{
		BaseEndpoint: &endpoint, Region: c.Region, UsePathStyle: true, HTTPClient: new(http.Client),
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

// empty removes the bucket and what is in it.
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
