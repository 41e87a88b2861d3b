package objstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"sluice/classify"
)

// KeysFromFiles returns a function for [S3Config] that reads access and secret key from files. It trims white space
// around the keys.
func KeysFromFiles(accessFile, secretFile string) func(context.Context) (Keys, error) {
	return func(context.Context) (Keys, error) {
		access, err := os.ReadFile(accessFile)
		if err != nil {
			return Keys{}, fmt.Errorf("read access key: %w", err)
		}
		secret, err := os.ReadFile(secretFile)
		if err != nil {
			return Keys{}, fmt.Errorf("read secret key: %w", err)
		}
		return Keys{Access: strings.TrimSpace(string(access)), Secret: strings.TrimSpace(string(secret))}, nil
	}
}

// provider returns the replacement of the default credential chain, nil if there is none.
func (c S3Config) provider() aws.CredentialsProvider {
	if c.Keys == nil && c.AccessKey == "" {
		return nil
	}
	return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		k, err := Keys{Access: c.AccessKey, Secret: c.SecretKey, Session: c.SessionToken}, error(nil)
		if c.Keys != nil {
			k, err = c.Keys(ctx)
		}
		if err == nil && (k.Access == "" || k.Secret == "") {
			err = errors.New("the keys of S3 are empty")
		}
		if err != nil {
			return aws.Credentials{}, classify.Mark(err, classify.Fatal)
		}
		return aws.Credentials{AccessKeyID: k.Access, SecretAccessKey: k.Secret, SessionToken: k.Session, Source: "sluice"}, nil
	})
}
