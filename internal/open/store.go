package open

import (
	"context"
	"fmt"

	"sluice/internal/config"
	"sluice/sink/delta/objstore"
)

// Store opens the store of all tables. If the store implements io.Closer, the caller closes it.
func Store(ctx context.Context, c *config.Config) (objstore.Store, error) {
	s3 := c.Storage.S3
	o := objstore.S3Config{
		Endpoint: s3.Endpoint, Region: s3.Region, PathStyle: s3.PathStyle,
		AccessKey: string(s3.AccessKey), SecretKey: string(s3.SecretKey), Timeout: s3.Timeout,
		CAFile: s3.CAFile, InsecurePlaintext: s3.InsecurePlaintext,
	}
	if s3.AccessKeyFile != "" {
		o.Keys = objstore.KeysFromFiles(s3.AccessKeyFile, s3.SecretKeyFile)
	}
	store, err := objstore.Open(ctx, c.Storage.URL, o)
	if err != nil {
		return nil, fmt.Errorf("storage.url: %w", err)
	}
	return store, nil
}
