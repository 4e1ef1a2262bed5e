package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

const dialsAtOnce = 64

// idle opens connections, each of which gets one answer, says so, and holds them until standard input ends.
func idle(o options) (map[string]float64, error) {
	conns := make(chan net.Conn, o.connections)
	errs := make(chan error, o.connections)
	slots := make(chan struct{}, dialsAtOnce)
	began := time.Now()
	for i := 0; i < o.connections; i++ {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			conn, err := greeted(o.addr)
			if err == nil {
				conns <- conn
			}
			errs <- err
		}()
	}
	for i := 0; i < o.connections; i++ {
		if err := <-errs; err != nil {
			return nil, fmt.Errorf("connection %d of %d: %w", i+1, o.connections, err)
		}
	}
	show(map[string]float64{"connections": float64(o.connections), "seconds": time.Since(began).Seconds()})
	io.Copy(io.Discard, os.Stdin)
	close(conns)
	for conn := range conns {
		conn.Close()
	}
	return map[string]float64{"closed": float64(o.connections)}, nil
}

// greeted is a connection whose ApiVersions request was answered, as every client's first is. It keeps no buffer.
func greeted(addr string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, answerTimeout)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(answerTimeout))
	m := newMessage(18, 3)
	m.string("load")
	m.string("1")
	m.tags()
	if _, err := conn.Write(m.finish()); err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, buffer: make([]byte, 4<<10)}
	if _, err := c.receive(); err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Time{})
}
