package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"sluice/classify"
)

// keysAge is how long keys of [S3Config.Keys] are used before they are read again. With keys that overlap for longer, no
// request uses keys that are no longer valid.
const keysAge = 10 * time.Second

// KeysFromFiles returns a function for [S3Config] that reads access and secret key from files. It trims white space
// around the keys. It reads the access key twice, because another process may replace both files between two reads.
func KeysFromFiles(accessFile, secretFile string) func(context.Context) (Keys, error) {
	return func(context.Context) (Keys, error) {
		access, err := os.ReadFile(accessFile)
		if err != nil {
			return Keys{}, fmt.Errorf("read access key: %w", err)
		}
		for {
			secret, err := os.ReadFile(secretFile)
			if err != nil {
				return Keys{}, fmt.Errorf("read secret key: %w", err)
			}
			again, err := os.ReadFile(accessFile)
			if err != nil {
				return Keys{}, fmt.Errorf("read access key: %w", err)
			}
			if bytes.Equal(access, again) {
				return Keys{Access: strings.TrimSpace(string(access)), Secret: strings.TrimSpace(string(secret))}, nil
			}
			access = again
		}
	}
}

// provider returns the replacement of the default credential chain, nil if there is none.
func (c S3Config) provider() aws.CredentialsProvider {
	if c.Keys == nil && c.AccessKey == "" {
		return nil
	}
	if c.Keys == nil {
		own := Keys{Access: c.AccessKey, Secret: c.SecretKey, Session: c.SessionToken}
		return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return own.credentials() })
	}
	return rotatingKeys(c.Keys)
}

// rotatingKeys provides keys that are read again after [keysAge], and after a denial.
type rotatingKeys func(context.Context) (Keys, error)

// Retrieve implements [aws.CredentialsProvider].
func (read rotatingKeys) Retrieve(ctx context.Context) (aws.Credentials, error) {
	k, err := read(ctx)
	if err != nil {
		return aws.Credentials{}, classify.Mark(err, classify.Fatal)
	}
	c, err := k.credentials()
	c.CanExpire, c.Expires = true, time.Now().Add(keysAge)
	return c, err
}

// HandleFailToRefresh implements [aws.HandleFailRefreshCredentialsCacheStrategy]: while the keys cannot be read, for
// example because another process writes their files, the keys before them are used, unless the store has denied those.
func (read rotatingKeys) HandleFailToRefresh(_ context.Context, before aws.Credentials, err error) (aws.Credentials, error) {
	if !before.HasKeys() {
		return aws.Credentials{}, err
	}
	before.Expires = time.Now().Add(keysAge)
	return before, nil
}

// credentials returns the keys for the SDK.
func (k Keys) credentials() (aws.Credentials, error) {
	if k.Access == "" || k.Secret == "" {
		return aws.Credentials{}, classify.Mark(errors.New("the keys of S3 are empty"), classify.Fatal)
	}
	return aws.Credentials{AccessKeyID: k.Access, SecretAccessKey: k.Secret, SessionToken: k.Session, Source: "sluice"}, nil
}
