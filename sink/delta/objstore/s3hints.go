package objstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	"sluice/classify"
	"sluice/secure"
)

// place has what error texts and hints say about the bucket and its configuration.
type place struct {
	bucket    string
	prefix    string // prefix of all keys: empty, or with a slash at its end
	endpoint  string // URL of a service other than AWS, else empty
	region    string
	pathStyle bool // true if URLs have the bucket in the path, not in the host name
	source    keySource
}

// keySource names the origin of credentials in hints.
type keySource struct{ access, secret, both string }

// source returns the origin of c's credentials.
func (c S3Config) source() keySource {
	switch {
	case c.Keys != nil:
		return keySource{"storage.s3.access_key_file", "storage.s3.secret_key_file", "storage.s3.access_key_file and storage.s3.secret_key_file"}
	case c.AccessKey != "":
		return keySource{"storage.s3.access_key", "storage.s3.secret_key", "storage.s3.access_key and storage.s3.secret_key"}
	}
	const chain = " of AWS's environment variables, profile or role"
	return keySource{"the access key" + chain, "the secret key" + chain, "the keys" + chain}
}

// hint returns what to do about a response of the store, "" if that is unknown.
func (f *failure) hint() string {
	switch f.code {
	case "NoSuchBucket":
		return fmt.Sprintf(`create bucket "%s", or correct its name in storage.url%s`, oneLine(f.bucket, maxName),
			f.unlessPath(`; if the server knows buckets by their path only, set storage.s3.path_style: true`))
	case "InvalidBucketName":
		return "correct the name of the bucket in storage.url"
	case "SignatureDoesNotMatch":
		return fmt.Sprintf("correct %s, which does not belong to the access key. If it does, a proxy changes requests on their way", f.source.secret)
	case "InvalidAccessKeyId", "InvalidClientTokenId":
		return fmt.Sprintf("correct %s, which the store does not know%s", f.source.access, f.unlessAWS(", or storage.s3.endpoint if the keys are another store's"))
	case "ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired":
		return fmt.Sprintf("renew %s; temporary keys expire and need their session token", f.source.both)
	case "AccessDenied", "AllAccessDisabled":
		return fmt.Sprintf("allow %s, in the policy of the user or role that the keys belong to and in that of the bucket", f.action())
	case "RequestTimeTooSkewed", "RequestExpired":
		return "set the clock of this host: it differs too much from the store's"
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		return f.regionHint()
	case "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded":
		return "free space in the store, or raise its quota"
	case "":
		return f.statusHint()
	}
	if f.status == http.StatusMovedPermanently {
		return f.regionHint()
	}
	return ""
}

// statusHint returns what to do about a response without an S3 error code, "" if that is unknown. Such a response
// answers a HEAD, or does not come from S3.
func (f *failure) statusHint() string {
	switch {
	case f.bucketIn != "" && f.bucketIn != f.region:
		return f.regionHint()
	case f.status >= 300 && f.status < 400 && f.redirect != "":
		return fmt.Sprintf("set storage.s3.endpoint to the address that the response points to, %s, or correct storage.s3.region", f.redirect)
	case f.status == http.StatusMovedPermanently:
		return f.regionHint()
	case f.status == http.StatusUnauthorized, f.status == http.StatusForbidden:
		return fmt.Sprintf("correct %s, or allow %s", f.source.both, f.action())
	case f.status == http.StatusBadRequest && f.plain && f.kind != OpHead:
		// A server that expects TLS answers this way. Its text is often lost, since it closes the connection at once.
		return "write https:// into storage.s3.endpoint if the server speaks TLS at this port, or correct the port"
	case f.status >= 400 && f.status < 500 && f.kind != OpHead:
		return "correct storage.s3.endpoint if something else than S3 answers there, such as a proxy or a web console"
	}
	return ""
}

// regionHint says which region to configure: the one that the response names, else the region of the bucket without a
// name.
func (f *failure) regionHint() string {
	region := "the region of the bucket"
	if f.bucketIn != "" {
		region = f.bucketIn
	}
	hint := fmt.Sprintf("set storage.s3.region to %s; requests go to %s now", region, oneLine(f.region, maxCode))
	return hint + f.unlessAWS(". If storage.s3.endpoint names a region, correct it, too")
}

// action returns the permissions that the operation needs, on all keys below the prefix.
func (f *failure) action() string {
	bucket := "arn:aws:s3:::" + oneLine(f.bucket, maxName)
	objects := bucket + "/" + shortKey(f.prefix) + "*"
	switch f.kind {
	case OpGet, OpHead: // without the right to list, S3 denies access to missing objects
		return fmt.Sprintf("s3:GetObject on %s and s3:ListBucket on %s", objects, bucket)
	case OpList:
		return "s3:ListBucket on " + bucket
	case OpDelete:
		return "s3:DeleteObject on " + objects
	case OpPut, OpPutIfAbsent:
	}
	return "s3:PutObject on " + objects
}

// transportHint returns what to do about a request that got no response, "" if it was held back by the last check of a
// put.
func (f *failure) transportHint() string {
	if hint := f.tlsHint(); hint != "" {
		return hint
	}
	dns, unresolved := errors.AsType[*net.DNSError](f.err)
	op, dialed := errors.AsType[*net.OpError](f.err)
	_, unsigned := errors.AsType[*keysError](f.err)
	switch {
	case unsigned && f.source == (S3Config{}).source():
		return "set storage.s3.access_key and storage.s3.secret_key (or their files), or give this process keys by AWS's environment variables, profile or role"
	case unsigned:
		return "correct " + f.source.both
	case errors.Is(f.err, secure.ErrPlaintext):
		return "write https:// into storage.s3.endpoint, or set storage.s3.insecure_plaintext: true if everyone on the way may read along"
	case errors.Is(f.err, ErrNotSent): // the last check of a put refused to send the request: nothing is wrong with the store
		return ""
	case dialed && op.Op == "proxyconnect":
		return "correct HTTPS_PROXY or HTTP_PROXY in the environment, or name the store's host in NO_PROXY"
	case unresolved && !dns.IsNotFound:
		return "check the DNS of this host"
	case unresolved && f.endpoint == "":
		return "correct storage.s3.region, which is part of the host's name, or the DNS of this host"
	case unresolved && strings.HasPrefix(dns.Name, f.bucket+"."):
		return "correct the host in storage.s3.endpoint, or set storage.s3.path_style: true if the server knows buckets by their path only"
	case unresolved:
		return "correct the host in storage.s3.endpoint, or the DNS of this host"
	case errors.Is(f.err, syscall.ECONNREFUSED) && f.endpoint != "":
		return "start the server, or correct host and port in storage.s3.endpoint"
	case f.endpoint == "":
		return "check the network between this host and AWS"
	}
	return "check storage.s3.endpoint, and the network between this host and the store"
}

// tlsHint returns what to do if one side does not trust the other one's certificate, or if only one of them uses TLS.
// It returns "" for errors of other kinds.
func (f *failure) tlsHint() string {
	_, record := errors.AsType[tls.RecordHeaderError](f.err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](f.err)
	_, roots := errors.AsType[x509.SystemRootsError](f.err)
	_, host := errors.AsType[x509.HostnameError](f.err)
	invalid, rejected := errors.AsType[x509.CertificateInvalidError](f.err)
	switch {
	case record, errors.Is(f.err, http.ErrSchemeMismatch):
		return "write http:// into storage.s3.endpoint (with storage.s3.insecure_plaintext: true for another machine), " +
			"or the port at which the server speaks TLS"
	case f.plain && strings.Contains(f.err.Error(), `malformed HTTP response "\x15\x03`): // a TLS alert in response to plain HTTP; net/http has no type for it
		return "write https:// into storage.s3.endpoint: the server speaks TLS at this port"
	case authority, roots:
		return "set storage.s3.ca_file to the certificate of the authority that signed the server's certificate"
	case host:
		return "write a host into storage.s3.endpoint that the server's certificate is for" +
			f.unlessPath("; storage.s3.path_style: true keeps the bucket out of the host's name")
	case rejected && invalid.Reason == x509.Expired:
		return "renew the server's certificate, or set the clock of this host"
	case classify.Untrusted(f.err):
		return "check the server's certificate and its log"
	}
	return ""
}

// unlessAWS returns text if a server other than AWS is configured, else "".
func (f *failure) unlessAWS(text string) string {
	if f.endpoint == "" {
		return ""
	}
	return text
}

// unlessPath returns text if a server other than AWS is configured and its host name has the bucket in it, else "".
func (f *failure) unlessPath(text string) string {
	if f.pathStyle {
		return ""
	}
	return f.unlessAWS(text)
}
