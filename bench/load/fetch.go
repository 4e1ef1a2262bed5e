package main

import (
	"fmt"
	"time"
)

// position is what a fetch asks of one partition.
type position struct {
	partition int32
	offset    int64
}

// fetched is what an answer says of the partitions in it.
type fetched struct {
	session    int32
	partitions int
	bytes      int
	next       int64 // offset after the last whole batch, -1 where there is none
	watermark  int64
}

// fetch reads one partition on each connection from its beginning, again and again.
func fetch(o options) (map[string]float64, error) {
	deadline := time.Now().Add(o.duration)
	sizes := make([]int, o.partitions)
	seen, err := onConnections(o.partitions, func(index int, l *latencies) error {
		conn, err := dial(o.addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(deadline.Add(answerTimeout))
		at := position{partition: int32(index)}
		for time.Now().Before(deadline) {
			began := time.Now()
			got, err := ask(conn, fetchFrame(o.topic, []position{at}, o.fetchBytes, 0, -1))
			if err != nil {
				return err
			}
			if got.bytes == 0 {
				return fmt.Errorf("partition %d gave nothing at offset %d", index, at.offset)
			}
			l.add(time.Since(began))
			sizes[index] += got.bytes
			at.offset = got.next
			if at.offset >= got.watermark {
				at.offset = 0
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	result := seen.summary()
	for _, size := range sizes {
		result["bytes"] += float64(size)
	}
	return result, nil
}

// session opens a fetch session over all partitions at their end, then polls it: nothing has changed, and nothing is waited for.
func session(o options) (map[string]float64, error) {
	positions := allAtStart(o.partitions)
	return poll(o, func(conn *connection) (func() []byte, error) {
		opened, err := ask(conn, fetchFrame(o.topic, positions, o.fetchBytes, 0, 0))
		if err != nil {
			return nil, err
		}
		if opened.session == 0 {
			return nil, fmt.Errorf("the broker opened no fetch session")
		}
		epoch := int32(0)
		return func() []byte {
			epoch++
			return fetchFrame(o.topic, nil, o.fetchBytes, opened.session, epoch)
		}, nil
	})
}

// full names all partitions in each request and opens no session, as librdkafka does, which begins with another one each time.
func full(o options) (map[string]float64, error) {
	positions := allAtStart(o.partitions)
	return poll(o, func(conn *connection) (func() []byte, error) {
		return func() []byte {
			positions = append(positions[1:], positions[0])
			return fetchFrame(o.topic, positions, o.fetchBytes, 0, -1)
		}, nil
	})
}

func allAtStart(partitions int) []position {
	positions := make([]position, partitions)
	for i := range positions {
		positions[i].partition = int32(i)
	}
	return positions
}

// poll asks one request after the other on one connection; in none of the partitions is anything to read.
func poll(o options, begin func(*connection) (func() []byte, error)) (map[string]float64, error) {
	seen, err := onConnections(1, func(_ int, l *latencies) error {
		conn, err := dial(o.addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(o.duration + answerTimeout))
		next, err := begin(conn)
		if err != nil {
			return err
		}
		deadline := time.Now().Add(o.duration)
		for time.Now().Before(deadline) {
			began := time.Now()
			got, err := ask(conn, next())
			if err != nil {
				return err
			}
			if got.bytes != 0 {
				return fmt.Errorf("quiet partitions gave %d bytes", got.bytes)
			}
			l.add(time.Since(began))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return seen.summary(), nil
}

func ask(conn *connection, frame []byte) (fetched, error) {
	if _, err := conn.Write(frame); err != nil {
		return fetched{}, err
	}
	data, err := conn.receive()
	if err != nil {
		return fetched{}, err
	}
	return readFetched(data)
}

func fetchFrame(topic string, positions []position, bytesMax int, session, epoch int32) []byte {
	m := newMessage(apiFetch, fetchVersion)
	m.int32(-1) // replica id: a consumer
	m.int32(0)  // longest wait
	m.int32(1)  // least bytes
	m.int32(int32(bytesMax))
	m.int8(0)
	m.int32(session)
	m.int32(epoch)
	if len(positions) == 0 {
		m.count(0)
	} else {
		m.count(1)
		m.string(topic)
		m.count(len(positions))
		for _, at := range positions {
			m.int32(at.partition)
			m.int32(-1) // current leader epoch
			m.int64(at.offset)
			m.int32(-1) // last fetched epoch
			m.int64(-1) // log start offset
			m.int32(int32(bytesMax))
			m.tags()
		}
		m.tags()
	}
	m.count(0)   // forgotten topics
	m.string("") // rack
	m.tags()
	return m.finish()
}

func readFetched(data []byte) (fetched, error) {
	a := answer{data: data}
	got := fetched{next: -1}
	a.int32() // correlation id
	a.tags()
	a.int32() // throttle
	if code := a.int16(); code != 0 {
		return got, fmt.Errorf("fetch: error code %d", code)
	}
	got.session = a.int32()
	for topics := a.uvarint(); topics > 1 && a.err == nil; topics-- {
		a.bytes()
		for parts := a.uvarint(); parts > 1 && a.err == nil; parts-- {
			if err := readPartition(&a, &got); err != nil {
				return got, err
			}
		}
		a.tags()
	}
	return got, a.err
}

func readPartition(a *answer, got *fetched) error {
	index := a.int32()
	code := a.int16()
	got.watermark = a.int64()
	a.int64() // last stable offset
	a.int64() // log start offset
	for aborted := a.uvarint(); aborted > 1 && a.err == nil; aborted-- {
		a.take(16)
		a.tags()
	}
	a.int32() // preferred read replica
	size, next := wholeBatches(a.bytes())
	a.tags()
	if code != 0 {
		return fmt.Errorf("fetch: partition %d: error code %d", index, code)
	}
	got.partitions++
	got.bytes += size
	if next >= 0 {
		got.next = next
	}
	return a.err
}
