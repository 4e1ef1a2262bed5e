package main

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
)

const (
	apiOffsetCommit    = 8
	apiFindCoordinator = 10
	apiJoinGroup       = 11
	apiHeartbeat       = 12
	apiSyncGroup       = 14

	coordinatorLoading  = 14
	coordinatorAway     = 15
	notCoordinator      = 16
	unknownMember       = 25
	rebalanceInProgress = 27
	memberIDRequired    = 79
	rejoinsMax          = 100
	heartbeatInterval   = 3 * time.Second
)

// request sends one request and returns the answer behind its header.
func request(conn *connection, m *message) (*answer, error) {
	if _, err := conn.Write(m.finish()); err != nil {
		return nil, err
	}
	data, err := conn.receive()
	if err != nil {
		return nil, err
	}
	a := &answer{data: data}
	a.int32()
	a.tags()
	return a, a.err
}

// awaitCoordinator returns when the broker says that it coordinates the group; the first call makes it create the topic.
func awaitCoordinator(conn *connection, group string) error {
	deadline := time.Now().Add(answerTimeout)
	for {
		m := newMessage(apiFindCoordinator, 3)
		m.string(group)
		m.int8(0)
		m.tags()
		a, err := request(conn, m)
		if err != nil {
			return err
		}
		a.int32()
		code := a.int16()
		if code == 0 {
			return a.err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no coordinator: error code %d", code)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// commits commits one offset of a group of its own again and again on each connection.
func commits(o options) (map[string]float64, error) {
	deadline := time.Now().Add(o.duration + time.Second)
	seen, err := onConnections(o.connections, func(index int, l *latencies) error {
		conn, err := dial(o.addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(deadline.Add(2 * answerTimeout))
		group := fmt.Sprintf("%s-%d", o.topic, index)
		if err := awaitCoordinator(conn, group); err != nil {
			return err
		}
		end := time.Now().Add(o.duration)
		for offset := int64(0); time.Now().Before(end); offset++ {
			began := time.Now()
			if err := commit(conn, group, o.topic, int32(index%o.partitions), offset); err != nil {
				return err
			}
			l.add(time.Since(began))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	seen.seconds = o.duration.Seconds()
	return seen.summary(), nil
}

func commit(conn *connection, group, topic string, partition int32, offset int64) error {
	m := newMessage(apiOffsetCommit, 8)
	m.string(group)
	m.int32(-1)
	m.string("")
	m.null()
	m.count(1)
	m.string(topic)
	m.count(1)
	m.int32(partition)
	m.int64(offset)
	m.int32(-1)
	m.string("")
	m.tags()
	m.tags()
	m.tags()
	a, err := request(conn, m)
	if err != nil {
		return err
	}
	a.int32()
	a.uvarint()
	a.bytes()
	a.uvarint()
	a.int32()
	if code := a.int16(); code != 0 || a.err != nil {
		return fmt.Errorf("commit: error code %d, %v", code, a.err)
	}
	return nil
}

// members forms groups of members that each have a connection, says so, and sends heartbeats until standard input ends.
func members(o options) (map[string]float64, error) {
	var beats, failures atomic.Int64
	joined := make(chan error, o.groups*o.groupMembers)
	began := time.Now()
	for i := 0; i < o.groups*o.groupMembers; i++ {
		go func(i int) {
			m, err := join(o, fmt.Sprintf("%s-%d", o.topic, i/o.groupMembers))
			joined <- err
			if err == nil {
				m.beat(&beats, &failures, i)
			}
		}(i)
		if i%dialsAtOnce == dialsAtOnce-1 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	for i := 0; i < o.groups*o.groupMembers; i++ {
		if err := <-joined; err != nil {
			return nil, fmt.Errorf("member %d of %d: %w", i+1, o.groups*o.groupMembers, err)
		}
	}
	show(map[string]float64{"members": float64(o.groups * o.groupMembers), "seconds": time.Since(began).Seconds()})
	io.Copy(io.Discard, os.Stdin)
	return map[string]float64{"heartbeats": float64(beats.Load()), "failures": float64(failures.Load())}, nil
}

// member is one member of a classic group in its generation.
type member struct {
	conn       *connection
	group, id  string
	generation int32
}

func join(o options, group string) (*member, error) {
	conn, err := dial(o.addr)
	if err != nil {
		return nil, err
	}
	m := &member{conn: conn, group: group}
	if err := awaitCoordinator(conn, group); err != nil {
		return nil, err
	}
	return m, m.rejoin()
}

// rejoin goes through JoinGroup and SyncGroup until the member is part of a generation.
func (m *member) rejoin() error {
	m.conn.SetDeadline(time.Now().Add(6 * answerTimeout))
	defer m.conn.SetDeadline(time.Time{})
	for i := 0; i < rejoinsMax; i++ {
		leader, others, code, err := m.enter()
		if err == nil && code == 0 {
			code, err = m.sync(leader, others)
		}
		switch {
		case err != nil:
			return err
		case code == 0:
			return nil
		case code == coordinatorLoading || code == coordinatorAway || code == notCoordinator:
			time.Sleep(100 * time.Millisecond)
		case code != memberIDRequired && code != rebalanceInProgress:
			return fmt.Errorf("join: error code %d", code)
		}
	}
	return fmt.Errorf("the group did not become stable")
}

// enter sends JoinGroup; the leader gets the ids of all members.
func (m *member) enter() (bool, []string, int16, error) {
	r := newMessage(apiJoinGroup, 6)
	r.string(m.group)
	r.int32(45_000)
	r.int32(60_000)
	r.string(m.id)
	r.null()
	r.string("consumer")
	r.count(1)
	r.string("range")
	r.bytes([]byte("subscription"))
	r.tags()
	r.tags()
	a, err := request(m.conn, r)
	if err != nil {
		return false, nil, 0, err
	}
	a.int32()
	code := a.int16()
	m.generation = a.int32()
	a.bytes()
	leader := string(a.bytes())
	m.id = string(a.bytes())
	var others []string
	for n := a.uvarint() - 1; n > 0 && a.err == nil; n-- {
		others = append(others, string(a.bytes()))
		a.bytes()
		a.bytes()
		a.tags()
	}
	return leader == m.id, others, code, a.err
}

// sync sends SyncGroup, with an assignment for everybody if this is the leader.
func (m *member) sync(leader bool, others []string) (int16, error) {
	r := newMessage(apiSyncGroup, 4)
	r.string(m.group)
	r.int32(m.generation)
	r.string(m.id)
	r.null()
	if !leader {
		others = nil
	}
	r.count(len(others))
	for _, id := range others {
		r.string(id)
		r.bytes([]byte("assignment"))
		r.tags()
	}
	r.tags()
	a, err := request(m.conn, r)
	if err != nil {
		return 0, err
	}
	a.int32()
	return a.int16(), a.err
}

// beat sends heartbeats for good, spread over the interval.
func (m *member) beat(beats, failures *atomic.Int64, index int) {
	time.Sleep(time.Duration(index%1000) * heartbeatInterval / 1000)
	for {
		r := newMessage(apiHeartbeat, 4)
		r.string(m.group)
		r.int32(m.generation)
		r.string(m.id)
		r.null()
		r.tags()
		a, err := request(m.conn, r)
		if err != nil {
			failures.Add(1)
			return
		}
		a.int32()
		code := a.int16()
		if code == rebalanceInProgress || code == unknownMember {
			if m.rejoin() != nil {
				failures.Add(1)
				return
			}
		} else if code != 0 {
			failures.Add(1)
		}
		beats.Add(1)
		time.Sleep(heartbeatInterval)
	}
}
