package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Bucket reads and writes the objects of one bucket. Tests inspect and forge objects with it.
type Bucket struct {
	Name   string
	client *s3.Client
}

// CreateBucket creates a bucket on a server that accepts AccessKey.
func CreateBucket(ctx context.Context, endpoint, name string) (*Bucket, error) {
	client := s3.New(s3.Options{
		BaseEndpoint: &endpoint,
		Region:       Region,
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
	})
	if _, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name}); err != nil {
		return nil, fmt.Errorf("create bucket %s: %w", name, err)
	}
	return &Bucket{name, client}, nil
}

// List returns the keys below prefix, in order.
func (b *Bucket) List(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.Name, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, object := range page.Contents {
			keys = append(keys, *object.Key)
		}
	}
	return keys, nil
}

// Get returns the content of an object.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, error) {
	resp, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.Name, Key: &key})
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	return body, nil
}

// Create writes an object. It fails if the object exists.
func (b *Bucket) Create(ctx context.Context, key string, body []byte) error {
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.Name, Key: &key, Body: bytes.NewReader(body), IfNoneMatch: aws.String("*"),
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	return nil
}

// Overwrite writes an object without a condition, as a program does that ignores the rules of the log.
func (b *Bucket) Overwrite(ctx context.Context, key string, body []byte) error {
	if _, err := b.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &b.Name, Key: &key, Body: bytes.NewReader(body)}); err != nil {
		return fmt.Errorf("overwrite %s: %w", key, err)
	}
	return nil
}

// Delete deletes an object.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if _, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.Name, Key: &key}); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// Size returns the number of objects below prefix and the sum of their sizes.
func (b *Bucket) Size(ctx context.Context, prefix string) (objects int, size int64, err error) {
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.Name, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, 0, fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, object := range page.Contents {
			if !strings.HasSuffix(*object.Key, "/") {
				objects++
				size += *object.Size
			}
		}
	}
	return objects, size, nil
}
