package recordbatch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Limits bound the decoding of a response. Zero fields take their defaults.
type Limits struct {
	// Batch is the largest decompressed size of one record batch: 64 MiB.
	Batch int
	// Ratio and Floor stop a decompression bomb early: a batch may have at most Floor bytes plus Ratio times its
	// compressed size. By default Ratio is 256 and Floor 16 MiB. Floor admits harmless batches of nearly equal records,
	// which can shrink to a thousandth.
	Ratio int
	Floor int
	// Response limits the decompressed size of one response: once the opened batches have this many bytes, no further
	// batch is opened, and the next request fetches the others again. By default it is 8 MiB.
	Response int
}

// WithDefaults returns l with its zero fields set.
func (l Limits) WithDefaults() Limits {
	return Limits{
		Batch:    cmp.Or(l.Batch, 64<<20),
		Ratio:    cmp.Or(l.Ratio, 256),
		Floor:    cmp.Or(l.Floor, 16<<20),
		Response: cmp.Or(l.Response, 8<<20),
	}
}

// batch returns the limit for the decompressed size of a batch with this compressed size.
func (l Limits) batch(compressed int) int {
	return min(l.Batch, l.Floor+min(compressed, l.Batch)*l.Ratio)
}

var (
	errTooLarge = errors.New("decompressed batch too large")
	errLie      = errors.New("it claims to hold more than its format can")
)

// The codecs of record batches, by the number in their attributes.
const (
	codecNone = iota
	codecGzip
	codecSnappy
	codecLZ4
	codecZstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7"}

// codecs has decompressors that are used again and again.
type codecs struct {
	src  bytes.Reader
	gzip *gzip.Reader
	lz4  *lz4.Reader
	zstd *zstd.Decoder

	beyond [1]byte // receives a byte if the data have more bytes than there is room for
}

// decompress decompresses src into the arena and returns the result. If the result would have more than limit bytes,
// the error is errTooLarge.
func (c *codecs) decompress(codec int, src []byte, a *arena, limit int) (out []byte, err error) {
	switch codec {
	case codecNone:
		if len(src) > limit {
			return nil, errTooLarge
		}
		// The bytes are copied, because otherwise the records of one partition would keep the whole response in memory.
		if err := a.reserve(len(src)); err != nil {
			return nil, err
		}
		return a.keep(append(a.room(), src...)), nil
	case codecGzip:
		return c.stream(c.openGzip, src, a, limit)
	case codecSnappy:
		// The size that the data claim must not alone cause an allocation. Valid snappy data do not grow more than
		// this: a copy element makes at most 64 bytes from 3.
		size, sane := snappySize(src), 24*len(src)+64
		if size > sane {
			return nil, errLie
		}
		if size > limit {
			return nil, errTooLarge
		}
		if err := a.reserve(size); err != nil {
			return nil, err
		}
		out, err := xerial.DecodeCapped(a.room(), src)
		if err != nil {
			return nil, err
		}
		return a.keep(out), nil
	case codecLZ4:
		return c.stream(c.openLZ4, src, a, limit)
	case codecZstd:
		return c.unzstd(src, a, limit)
	}
	return nil, errors.New("unknown codec")
}

// snappySize returns the claimed size of snappy data, with or without xerial framing.
func snappySize(src []byte) (size int) {
	const framing, frame = 16, 4
	if len(src) < 8 || !bytes.Equal(src[:8], []byte("\x82SNAPPY\x00")) {
		return decodedLen(src)
	}
	for p := framing; p+frame <= len(src); {
		n := i32(src[p:])
		p += frame
		if n < 0 || n > len(src)-p {
			break // malformed; the decoder will return the error
		}
		size += decodedLen(src[p : p+n])
		p += n
	}
	return size
}

// decodedLen returns the length at the start of a snappy block, 0 if there is none.
func decodedLen(block []byte) int {
	n, p := uvarint(block)
	if p < 0 || n > 1<<32-1 {
		return 0
	}
	return int(n)
}

// unzstd decompresses zstd data. It tries with a larger buffer each time, until the data fit or the buffer has limit
// bytes. The first size is the one that the frame claims (but see trusted), or four times the compressed size if it
// claims none.
func (c *codecs) unzstd(src []byte, a *arena, limit int) ([]byte, error) {
	if c.zstd == nil {
		// DecodeAll keeps no window. Java's level 22 declares a window of 128 MiB even for a small batch, so neither
		// the window size nor WithDecoderMaxMemory, which refuses it, may be applied.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxWindow(1<<29))
		if err != nil {
			return nil, err
		}
		c.zstd = d
	}
	size := 4 * len(src)
	if h := (zstd.Header{}); h.Decode(src) == nil && h.HasFCS {
		claim := int(min(h.FrameContentSize, math.MaxInt))
		if claim > limit {
			return nil, errTooLarge // refused by its own claim, before a buffer is allocated
		}
		size = min(claim, max(64*len(src), trusted)) // the claim alone must not cause the allocation of a large buffer
	}
	for {
		if err := a.reserve(min(size, limit)); err != nil {
			return nil, err
		}
		room := a.room()
		room = room[:0:min(cap(room), limit)]
		out, err := c.zstd.DecodeAll(src, room)
		// The decoder returns ErrDecoderSizeExceeded only if it knows the size in advance, or for a raw block. If a
		// compressed block does not fit, it returns the error of a corrupt block. A block has at most 128 KiB. So if
		// that much room was left, the block is really corrupt.
		const block = 128 << 10
		if err == nil {
			return a.keep(out), nil
		}
		if !errors.Is(err, zstd.ErrDecoderSizeExceeded) && cap(room)-len(out) >= block {
			return nil, err
		}
		if cap(room) >= limit {
			return nil, errTooLarge
		}
		size = a.grow(max(cap(room), size/2), limit)
	}
}

// stream decompresses with a decoder that is a reader. If the content does not fit into the buffer, stream begins again
// from the start with a larger one, so that there is only one buffer at a time.
func (c *codecs) stream(open func() (io.Reader, error), src []byte, a *arena, limit int) ([]byte, error) {
	limit++ // room for one byte more than limit, which shows that the content is too large
	size := min(max(2*len(src), a.expect(len(src))), limit)
	for {
		if err := a.reserve(size); err != nil {
			return nil, err
		}
		room := a.room()
		room = room[:0:min(cap(room), limit)]
		c.src.Reset(src)
		r, err := open()
		if err != nil {
			return nil, err
		}
		out, err := c.fill(r, room)
		switch {
		case len(out) == limit:
			return nil, errTooLarge
		case err == nil:
			return a.keep(out), nil
		case !errors.Is(err, errFull):
			return nil, err
		}
		size = a.grow(max(cap(room), minRoom), limit)
	}
}

var errFull = errors.New("the room is full")

// fill reads r to its end into room. The error is errFull if r has more bytes than room.
func (c *codecs) fill(r io.Reader, room []byte) ([]byte, error) {
	for {
		free := room[len(room):cap(room)]
		if len(free) == 0 {
			free = c.beyond[:]
		}
		n, err := r.Read(free)
		if n > 0 && len(room) == cap(room) {
			return room, errFull
		}
		room = room[:len(room)+n]
		if errors.Is(err, io.EOF) {
			return room, nil
		}
		if err != nil {
			return room, err
		}
	}
}

func (c *codecs) openGzip() (io.Reader, error) {
	if c.gzip != nil {
		return c.gzip, c.gzip.Reset(&c.src)
	}
	r, err := gzip.NewReader(&c.src)
	if err != nil {
		return nil, err
	}
	c.gzip = r
	return r, nil
}

func (c *codecs) openLZ4() (io.Reader, error) {
	if c.lz4 == nil {
		c.lz4 = lz4.NewReader(&c.src)
	} else {
		c.lz4.Reset(&c.src)
	}
	return c.lz4, nil
}

// trusted is the buffer size, in bytes, up to which unzstd allocates what a frame claims as its decompressed size. For
// a larger claim, the first buffer has at most 64 times the compressed size.
const trusted = 1 << 20

// minRoom is the smallest size with which a buffer begins to grow, so that after a wrong estimate a few steps are
// enough.
const minRoom = 4 << 10

// describe adds the name of the codec to err, and if err is errTooLarge, also the sizes.
func describe(codec, size, limit int, err error) error {
	if errors.Is(err, errTooLarge) {
		return fmt.Errorf("%w: codec %s, %d bytes compressed, limit %d", err, codecNames[codec], size, limit)
	}
	return fmt.Errorf("codec %s: %w", codecNames[codec], err)
}
