package objstoretest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"sluice/sink/delta/objstore"
)

// ServeS3 runs an S3 server with an empty bucket in this process, and returns a configuration for a store in that
// bucket. If wrap is not nil, requests go to the handler that wrap makes of the server's.
func ServeS3(t *testing.T, wrap func(http.Handler) http.Handler) objstore.S3Config {
	t.Helper()
	const bucket = "bucket"
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	h := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithTimeSkewLimit(0)).Server()
	if wrap != nil {
		h = wrap(h)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return objstore.S3Config{
		Bucket: bucket, Endpoint: server.URL, Region: "us-east-1", PathStyle: true, AccessKey: "access", SecretKey: "secret",
	}
}
