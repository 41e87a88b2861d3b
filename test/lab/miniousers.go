package lab

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// AddUser creates a user of the server with these keys, who may read and write everything.
func (m *MinIO) AddUser(ctx context.Context, access, secret string) error {
	user, err := json.Marshal(map[string]string{"secretKey": secret, "status": "enabled", "policy": "readwrite"})
	if err != nil {
		return fmt.Errorf("add a user of MinIO: %w", err)
	}
	sealed, err := sealForMinIO(user)
	if err != nil {
		return fmt.Errorf("add a user of MinIO: %w", err)
	}
	if err := m.admin(ctx, http.MethodPut, "add-user", url.Values{"accessKey": {access}}, sealed); err != nil {
		return fmt.Errorf("add a user of MinIO: %w", err)
	}
	policy := url.Values{"policyName": {"readwrite"}, "userOrGroup": {access}, "isGroup": {"false"}}
	if err := m.admin(ctx, http.MethodPut, "set-user-or-group-policy", policy, nil); err != nil {
		return fmt.Errorf("set the policy of a user of MinIO: %w", err)
	}
	return nil
}

// RemoveUser deletes a user of the server. Its keys are refused from then on.
func (m *MinIO) RemoveUser(ctx context.Context, access string) error {
	if err := m.admin(ctx, http.MethodDelete, "remove-user", url.Values{"accessKey": {access}}, nil); err != nil {
		return fmt.Errorf("remove a user of MinIO: %w", err)
	}
	return nil
}

// admin sends a request to the server's API for administration.
func (m *MinIO) admin(ctx context.Context, method, path string, query url.Values, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, m.Endpoint+"/minio/admin/v3/"+path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	hash := sha256.Sum256(body)
	sum := hex.EncodeToString(hash[:])
	req.Header.Set("X-Amz-Content-Sha256", sum)
	keys := aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}
	if err := v4.NewSigner().SignHTTP(ctx, keys, req, sum, "s3", Region, time.Now()); err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusMultipleChoices {
		text, err := io.ReadAll(resp.Body)
		return errors.Join(fmt.Errorf("%s: %s", resp.Status, text), err)
	}
	return nil
}

// sealForMinIO encrypts the body of a request for administration, with the secret key of its sender: salt, number of the
// algorithm, nonce, and one sealed block as in the format of sio-go (DARE). The associated data of the last block are
// 0x80 and the seal of nothing under the number 0.
func sealForMinIO(plain []byte) ([]byte, error) {
	const pbkdf2AESGCM = 2
	var salt [32]byte
	var nonce [12]byte
	_, _ = rand.Read(salt[:]) // never fails
	_, _ = rand.Read(nonce[:8])
	key, err := pbkdf2.Key(sha256.New, SecretKey, salt[:], 8192, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	data := aead.Seal([]byte{0x80}, nonce[:], nil, nil)
	nonce[8] = 1 // blocks have little-endian numbers
	head := slices.Concat(salt[:], []byte{pbkdf2AESGCM}, nonce[:8])
	return aead.Seal(head, nonce[:], plain, data), nil
}
