package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// produce sends the same batch again and again to each partition's leader, in-flight requests on each connection, and
// counts answers.
func produce(o options) (map[string]float64, error) {
	records := batch(o.batchRecords, o.recordBytes)
	addresses, err := leaders(o)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(o.duration)
	var produced atomic.Int64
	seen, err := onConnections(o.connections, func(index int, l *latencies) error {
		partition := index % o.partitions
		frame := produceFrame(o.topic, int32(partition), int16(o.acks), records)
		return produceOn(o, addresses[partition], frame, deadline, &produced, l)
	})
	if err != nil {
		return nil, err
	}
	result := seen.summary()
	result["bytes"] = float64(seen.count() * o.batchRecords * o.recordBytes)
	result["records"] = float64(seen.count() * o.batchRecords)
	return result, nil
}

func produceFrame(topic string, partition int32, acks int16, records []byte) []byte {
	m := newMessage(apiProduce, produceVersion)
	m.null() // transactional id
	m.int16(acks)
	m.int32(int32(answerTimeout / time.Millisecond))
	m.count(1)
	m.string(topic)
	m.count(1)
	m.int32(partition)
	m.bytes(records)
	m.tags()
	m.tags()
	m.tags()
	return m.finish()
}

func produceOn(o options, addr string, frame []byte, deadline time.Time, produced *atomic.Int64, l *latencies) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(deadline.Add(answerTimeout))
	requestBytes := int64(o.batchRecords * o.recordBytes)
	sent := make([]time.Time, o.inFlight) // a ring: answers come in the order of requests
	var first, next int32
	open := true
	for {
		for open && next-first < int32(o.inFlight) {
			now := time.Now()
			if now.After(deadline) || (o.bytesMax > 0 && produced.Add(requestBytes) > o.bytesMax) {
				open = false
				break
			}
			correlate(frame, next)
			sent[int(next)%o.inFlight] = now
			if _, err := conn.Write(frame); err != nil {
				return err
			}
			next++
		}
		if first == next {
			return nil
		}
		data, err := conn.receive()
		if err != nil {
			return err
		}
		if err := checkProduced(data, first); err != nil {
			return err
		}
		l.add(time.Since(sent[int(first)%o.inFlight]))
		first++
	}
}

func checkProduced(data []byte, correlation int32) error {
	a := answer{data: data}
	got := a.int32()
	a.tags()
	topics := a.uvarint() - 1
	a.bytes()
	partitions := a.uvarint() - 1
	a.int32()
	code := a.int16()
	switch {
	case a.err != nil:
		return a.err
	case got != correlation || topics != 1 || partitions != 1:
		return fmt.Errorf("answer %d to request %d with %d topics", got, correlation, topics)
	case code != 0:
		return fmt.Errorf("produce: error code %d", code)
	}
	return nil
}
