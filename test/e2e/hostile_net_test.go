//go:build lab && linux

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/test/lab"
)

// lieTold is a false response of a broker, and the text by which the member must report it.
type lieTold struct {
	name, input string
	lie         lab.Lie
	cut         bool // cut all connections first, because the member sends this request only on new ones
	says        string
}

// count changes a response: it overwrites four bytes of the body, from offset at on, with the number 2^31-1. It returns
// frame, which is the whole response as [lab.Lie] describes it.
func count(frame []byte, at int) []byte { copy(frame[8+at:], "\x7f\xff\xff\xff"); return frame }

// to returns a [lab.Lie] that applies change to the responses to requests with the API key api. Other responses stay
// unchanged.
func to(api int16, change func(version int16, frame []byte) []byte) lab.Lie {
	return func(key, version int16, frame []byte) []byte {
		if key != api {
			return nil
		}
		return change(version, frame)
	}
}

// lies are responses with counts or sizes that no real broker sends.
var lies = []lieTold{
	{
		"metadata", "Kafka: Metadata with 0x7fffffff brokers", to(3, func(_ int16, frame []byte) []byte { return count(frame, 4) }), true,
		"refused a malformed response",
	},
	{
		"versions", "Kafka: ApiVersions with 0x7fffffff keys", to(18, func(_ int16, frame []byte) []byte { return count(frame, 2) }), true,
		"does not speak Kafka's protocol",
	},
	{
		"size", "Kafka: every response has a size of 2 GiB", func(_, _ int16, frame []byte) []byte { copy(frame, "\x7f\xff\xff\xff"); return frame }, false,
		"refused a malformed response",
	},
	{
		"group", "Kafka: JoinGroup, SyncGroup and OffsetFetch with absurd counts", func(key, _ int16, frame []byte) []byte {
			if key != 11 && key != 14 && key != 9 {
				return nil
			}
			for i := 8; i < len(frame); i++ {
				frame[i] = 0x7f
			}
			return frame
		}, true,
		"refused a malformed response",
	},
	{
		"fetch", "Kafka: Fetch with absurd counts", to(1, func(_ int16, frame []byte) []byte {
			for i := 8 + 10; i < len(frame) && i < 8+10+16; i++ {
				frame[i] = 0xff
			}
			return frame
		}), false,
		"failed to read from Kafka; retrying",
	},
}

// hostileRedis returns hostile replies and values of a Redis in which members register. A member moves records without
// this Redis, so its tables must continue.
func hostileRedis() []hostile {
	replies := func(reply string) func(a *attack) []setting {
		return func(a *attack) []setting {
			return []setting{a.registersAt("redis://" + a.lyingRedis(reply))}
		}
	}
	return []hostile{
		{name: "redis-bulk", brief: true, input: "Redis: a reply of 2^63 bytes", before: replies("$9223372036854775800\r\n"), says: "members"},
		{name: "redis-array", input: "Redis: a reply of 2^31 elements", before: replies("*2147483647\r\n"), says: "members"},
		{name: "redis-nested", input: "Redis: arrays in arrays without end", before: replies(strings.Repeat("*1\r\n", 1_000_000)), says: "members"},
		{name: "redis-endless", input: "Redis: a line without end", before: replies("+" + strings.Repeat("x", 64<<20)), says: "members"},
		{name: "redis-value", input: "Redis: a registration of 300 MiB", before: func(a *attack) []setting {
			server, err := lab.StartRedis(a.ctx, a.dir)
			if err != nil {
				a.t.Fatal(err)
			}
			a.t.Cleanup(func() { _ = server.Kill() })
			return []setting{a.registersAt(server.URL)}
		}, during: func(a *attack) string { return a.largeRegistrations() }, says: "another program wrote among the registrations"},
	}
}

// registersAt returns a setting that makes the member register in the Redis at url.
func (a *attack) registersAt(url string) setting {
	a.t.Helper()
	file := filepath.Join(a.dir, "registry-url")
	if err := os.WriteFile(file, []byte(url), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return func(c *settings) {
		c.patient += fmt.Sprintf("\nmembers: {store: redis, url_file: %s, beat: 1s, ttl: 10s, sweep: 10s}", file)
	}
}

// lyingRedis starts a server that rejects the handshake of RESP 3 and answers each script with the same reply.
func (a *attack) lyingRedis(reply string) (addr string) {
	a.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := bufio.NewReader(conn); ; {
					command, err := redisCommand(in)
					if err != nil {
						return
					}
					answer := "-ERR unknown command\r\n"
					if strings.HasPrefix(command, "EVAL") || command == "SCRIPT" {
						answer = reply
					}
					if _, err := io.WriteString(conn, answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// redisCommand reads a whole command from a client of Redis and returns the first word of the command. It returns an
// error if the connection ends or the command has another format.
func redisCommand(in *bufio.Reader) (first string, err error) {
	number := func(mark string) (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), mark))
	}
	words, err := number("*")
	if err != nil {
		return "", err
	}
	for i := range words {
		n, err := number("$")
		if err != nil {
			return "", err
		}
		word := make([]byte, n+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return "", err
		}
		if i == 0 {
			first = strings.ToUpper(string(word[:n]))
		}
	}
	return first, nil
}

// largeRegistrations adds another member to the Redis. Its registration has 300 MiB, its status 300 MiB, and its last
// state 300 MiB.
func (a *attack) largeRegistrations() string {
	a.t.Helper()
	url, err := os.ReadFile(filepath.Join(a.dir, "registry-url"))
	if err != nil {
		a.t.Fatal(err)
	}
	opts, err := goredis.ParseURL(string(url))
	if err != nil {
		a.t.Fatal(err)
	}
	opts.ReadTimeout = time.Minute
	client := goredis.NewClient(opts)
	defer client.Close()
	a.await("the member has registered", func() (bool, error) {
		keys, err := client.Keys(a.ctx, "worker:connector:*").Result()
		return len(keys) > 0, err
	})
	if err := client.ConfigSet(a.ctx, "appendonly", "no").Err(); err != nil { // without this, Redis would write a gigabyte to disk
		a.t.Fatal(err)
	}
	const enlarge = `local large, n = string.rep('x', 300 * 1024 * 1024), 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  if kind == 'zset' then
    local newest = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
    redis.call('ZADD', key, newest[2], 'foreign')
  elseif kind == 'hash' then redis.call('HSET', key, 'foreign', large) n = n + 1 end
end
redis.call('SET', 'worker:connector:foreign', large)
return n`
	if n, err := client.Eval(a.ctx, enlarge, nil).Int(); err != nil || n == 0 {
		a.t.Fatalf("%d values beside the registration: %v", n, err)
	}
	return ""
}

// hostileClients are clients that connect to the member's health port.
func hostileClients() []hostile {
	return []hostile{
		{name: "http-idle", brief: true, input: "15 000 idle connections to the health port", says: "too many connections", during: func(a *attack) string {
			a.flood("GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n", 15_000)
			return ""
		}},
		{name: "http-slow", input: "2 000 connections with a header that never ends", says: "too many connections", during: func(a *attack) string {
			a.flood("GET /health/live HTTP/1.1\r\nHost: x\r\nX-A: ", 2_000)
			return ""
		}},
		{name: "http-header", input: "a request with 10 000 headers, and one with a header of 64 MiB", during: func(a *attack) string {
			many := a.request(strings.Repeat("X-Header: some value\r\n", 10_000))
			large := a.request("X-Large: " + strings.Repeat("x", 64<<20) + "\r\n")
			if !strings.Contains(many, "431") || !strings.Contains(large, "431") {
				a.t.Errorf("the answers are %q and %q", many, large)
			}
			return many
		}},
		{name: "http-report", input: "200 clients that ask for /health and /metrics and do not read", during: func(a *attack) string {
			a.flood("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n", 200)
			return "none: /health/live answers meanwhile"
		}},
	}
}

// flood opens n connections that send the same text and stay open, and probes the member meanwhile.
func (a *attack) flood(text string, n int) {
	a.t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		a.t.Fatal(err)
	}
	n = min(n, int(limit.Cur)*3/4)
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for i := range n {
		conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(a.ctx, "tcp", strings.TrimPrefix(a.m.url, "http://"))
		if err != nil {
			a.t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, conn)
		_, _ = io.WriteString(conn, text) // fails if the server has closed the connection
	}
	for range 5 {
		resp, err := a.m.get("/health/live")
		if err != nil {
			a.t.Fatalf("beside %d connections: %v", n, err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			a.t.Errorf("beside %d connections /health/live answers %d", n, resp.StatusCode)
		}
	}
}

// request sends GET /health with additional header lines to the member. It returns the status line of the response, or
// the text of the error if there is no response.
func (a *attack) request(headers string) string {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(a.m.url, "http://"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n") }() // may fail, because the server may close the connection early
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}
