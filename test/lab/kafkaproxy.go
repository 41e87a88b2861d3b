package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// KafkaProxy forwards the requests of clients to one broker and may change the broker's responses.
type KafkaProxy struct {
	Addr string

	listener net.Listener
	upstream string
	mu       sync.Mutex
	lie      Lie
	lies     int
	conns    map[net.Conn]struct{}
}

// Lie returns what a client receives in place of a broker's response, or nil for the unchanged response. key and
// version are those of the request. frame is the response: its size (4 bytes), its correlation id (4 bytes) and its
// body. The result has the same format.
type Lie func(key, version int16, frame []byte) []byte

// StartKafkaProxy starts a proxy that changes nothing. It has no broker until Connect. The caller must call Close.
func StartKafkaProxy() (*KafkaProxy, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start Kafka proxy: %w", err)
	}
	p := &KafkaProxy{Addr: l.Addr().String(), listener: l, conns: map[net.Conn]struct{}{}}
	go p.accept()
	return p, nil
}

// Connect sets the broker for new connections.
func (p *KafkaProxy) Connect(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
}

// Tell changes the broker's responses from now on. With nil the proxy changes nothing again.
func (p *KafkaProxy) Tell(lie Lie) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lie, p.lies = lie, 0
}

// Cut closes all connections. Clients may open new ones.
func (p *KafkaProxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Lies returns how many responses were changed since Tell.
func (p *KafkaProxy) Lies() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lies
}

// Close ends the proxy and its connections.
func (p *KafkaProxy) Close() error {
	err := p.listener.Close()
	p.Cut()
	return err
}

func (p *KafkaProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

// serve forwards the requests of one client to the broker, and the responses of the broker or the lies about them to
// the client.
func (p *KafkaProxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	broker, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		return
	}
	defer broker.Close()
	p.mu.Lock()
	p.conns[client] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
	}()
	asked := make(chan [2]int16, 1000) // a broker responds in the order of the requests
	go func() {
		defer broker.Close()
		defer close(asked)
		for {
			frame, err := readFrame(client)
			if err != nil || len(frame) < 8 {
				return
			}
			asked <- [2]int16{int16(binary.BigEndian.Uint16(frame[4:])), int16(binary.BigEndian.Uint16(frame[6:]))}
			if _, err := broker.Write(frame); err != nil {
				return
			}
		}
	}()
	for {
		frame, err := readFrame(broker)
		if err != nil {
			return
		}
		of, ok := <-asked
		if !ok {
			return
		}
		if _, err := client.Write(p.changed(of, frame)); err != nil {
			return
		}
	}
}

func (p *KafkaProxy) changed(of [2]int16, frame []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lie == nil {
		return frame
	}
	if lie := p.lie(of[0], of[1], frame); lie != nil {
		p.lies++
		return lie
	}
	return frame
}

// readFrame reads a request or response, including its size.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 200<<20 {
		return nil, errors.New("a frame of more than 200 MiB")
	}
	frame := make([]byte, 4+n)
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
