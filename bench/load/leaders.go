package main

import (
	"fmt"
	"net"
	"strconv"
)

const (
	apiMetadata     = 3
	metadataVersion = 9
)

// leaders asks the broker where each partition of the topic is led: addresses by partition.
func leaders(o options) ([]string, error) {
	conn, err := dial(o.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	m := newMessage(apiMetadata, metadataVersion)
	m.count(1)
	m.string(o.topic)
	m.tags()
	m.int8(0) // no topic is created
	m.int8(0) // nor are operations asked for, of the cluster
	m.int8(0) // or of topics
	m.tags()
	if _, err := conn.Write(m.finish()); err != nil {
		return nil, err
	}
	data, err := conn.receive()
	if err != nil {
		return nil, err
	}
	return readLeaders(data, o.partitions)
}

func readLeaders(data []byte, partitions int) ([]string, error) {
	a := answer{data: data}
	a.int32() // correlation id
	a.tags()
	a.int32() // throttle time
	brokers := map[int32]string{}
	for n := a.uvarint() - 1; n > 0 && a.err == nil; n-- {
		id := a.int32()
		host := string(a.bytes())
		brokers[id] = net.JoinHostPort(host, strconv.Itoa(int(a.int32())))
		a.bytes() // rack
		a.tags()
	}
	a.bytes() // cluster id
	a.int32() // controller
	found := make([]string, partitions)
	for n := a.uvarint() - 1; n > 0 && a.err == nil; n-- {
		a.int16()
		a.bytes()
		a.take(1) // is it internal
		for p := a.uvarint() - 1; p > 0 && a.err == nil; p-- {
			readLeader(&a, brokers, found)
		}
		a.int32()
		a.tags()
	}
	for partition, address := range found {
		if a.err == nil && address == "" {
			return nil, fmt.Errorf("partition %d has no leader", partition)
		}
	}
	return found, a.err
}

func readLeader(a *answer, brokers map[int32]string, found []string) {
	a.int16()
	partition, leader := a.int32(), a.int32()
	a.int32()                         // leader epoch
	for list := 0; list < 3; list++ { // replicas, in sync, offline
		for n := a.uvarint() - 1; n > 0 && a.err == nil; n-- {
			a.int32()
		}
	}
	a.tags()
	if a.err == nil && partition >= 0 && int(partition) < len(found) {
		found[partition] = brokers[leader]
	}
}
