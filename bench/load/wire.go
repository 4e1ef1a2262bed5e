package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	apiProduce = 0
	apiFetch   = 1
	clientID   = "load"

	produceVersion = 9
	fetchVersion   = 12

	frameBytesMax = 256 << 20
	answerTimeout = 20 * time.Second
)

// message is a request under construction: size, header, body, in the flexible encoding.
type message struct{ data []byte }

// newMessage begins a frame; finish fills in its size.
func newMessage(api, version int16) *message {
	m := &message{data: make([]byte, 4, 512)}
	m.int16(api)
	m.int16(version)
	m.int32(0) // correlation id, see correlate
	m.int16(int16(len(clientID)))
	m.data = append(m.data, clientID...)
	m.tags()
	return m
}

func (m *message) int8(v int8)   { m.data = append(m.data, byte(v)) }
func (m *message) int16(v int16) { m.data = binary.BigEndian.AppendUint16(m.data, uint16(v)) }
func (m *message) int32(v int32) { m.data = binary.BigEndian.AppendUint32(m.data, uint32(v)) }
func (m *message) int64(v int64) { m.data = binary.BigEndian.AppendUint64(m.data, uint64(v)) }
func (m *message) count(n int)   { m.data = binary.AppendUvarint(m.data, uint64(n)+1) }
func (m *message) tags()         { m.data = append(m.data, 0) }

func (m *message) string(s string) {
	m.count(len(s))
	m.data = append(m.data, s...)
}

func (m *message) bytes(b []byte) {
	m.count(len(b))
	m.data = append(m.data, b...)
}

func (m *message) null() { m.data = append(m.data, 0) }

func (m *message) finish() []byte {
	binary.BigEndian.PutUint32(m.data, uint32(len(m.data)-4))
	return m.data
}

// correlate writes the correlation id into a finished frame.
func correlate(frame []byte, id int32) { binary.BigEndian.PutUint32(frame[8:], uint32(id)) }

// answer reads fields off a response; the first thing that does not fit sets err, and everything after it reads as zero.
type answer struct {
	data []byte
	err  error
}

func (a *answer) take(n int) []byte {
	if a.err != nil || n < 0 || n > len(a.data) {
		if a.err == nil {
			a.err = fmt.Errorf("answer ends early")
		}
		return make([]byte, 8)
	}
	part := a.data[:n]
	a.data = a.data[n:]
	return part
}

func (a *answer) int16() int16 { return int16(binary.BigEndian.Uint16(a.take(2))) }
func (a *answer) int32() int32 { return int32(binary.BigEndian.Uint32(a.take(4))) }
func (a *answer) int64() int64 { return int64(binary.BigEndian.Uint64(a.take(8))) }

func (a *answer) uvarint() int {
	v, n := binary.Uvarint(a.data)
	if n <= 0 || v > frameBytesMax {
		n, v = len(a.data)+1, 0
	}
	a.take(n)
	return int(v)
}

// bytes reads a compact string, array of bytes, or null, which reads as empty.
func (a *answer) bytes() []byte {
	n := a.uvarint()
	if n == 0 {
		return nil
	}
	return a.take(n - 1)
}

func (a *answer) tags() {
	for n := a.uvarint(); n > 0 && a.err == nil; n-- {
		a.uvarint()
		a.take(a.uvarint())
	}
}

// connection reads whole answers into one buffer that it keeps: an answer is valid until the next call.
type connection struct {
	net.Conn
	buffer     []byte
	start, end int
}

func dial(addr string) (*connection, error) {
	conn, err := net.DialTimeout("tcp", addr, answerTimeout)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, buffer: make([]byte, 64<<10)}, nil
}

// receive returns the next answer without its size. A small answer costs one read.
func (c *connection) receive() ([]byte, error) {
	if err := c.fill(4); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(c.buffer[c.start:]))
	if size < 4 || size > frameBytesMax {
		return nil, fmt.Errorf("answer of %d bytes", size)
	}
	if err := c.fill(4 + size); err != nil {
		return nil, err
	}
	data := c.buffer[c.start+4 : c.start+4+size]
	c.start += 4 + size
	return data, nil
}

// fill waits until n bytes are there.
func (c *connection) fill(n int) error {
	if c.end-c.start >= n {
		return nil
	}
	if c.start == c.end {
		c.start, c.end = 0, 0
	}
	if c.start+n > len(c.buffer) {
		room := c.buffer
		if n > len(room) {
			room = make([]byte, n+n/4)
		}
		c.end = copy(room, c.buffer[c.start:c.end])
		c.buffer, c.start = room, 0
	}
	read, err := io.ReadAtLeast(c.Conn, c.buffer[c.end:], n-(c.end-c.start))
	c.end += read
	return err
}
