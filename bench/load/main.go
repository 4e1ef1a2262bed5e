// Command load puts raw protocol load on one broker and prints what it saw as one JSON object.
//
// A client library would be what is measured: it compresses, batches, keeps metadata and spends more than the broker does.
// This program sends frames that were made before the clock started. Produce finds the leaders of a cluster; all else is
// asked of the one broker that is named, which leads every partition.
//
//	load produce  -addr HOST:PORT -topic T -partitions 4 -connections 32 -in-flight 1 -seconds 4
//	load fetch    -addr HOST:PORT -topic T -partitions 4 -fetch-bytes 1048576 -seconds 3
//	load session  -addr HOST:PORT -topic T -partitions 1000 -seconds 3
//	load full     -addr HOST:PORT -topic T -partitions 200 -seconds 3
//	load commits  -addr HOST:PORT -topic T -partitions 4 -connections 32 -seconds 4
//	load members  -addr HOST:PORT -groups 1000 -group-members 5     holds them until its standard input ends
//	load idle     -addr HOST:PORT -connections 10000        holds them until its standard input ends
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

type options struct {
	addr         string
	topic        string
	partitions   int
	connections  int
	inFlight     int
	recordBytes  int
	batchRecords int
	acks         int
	fetchBytes   int
	duration     time.Duration
	bytesMax     int64
	groups       int
	groupMembers int
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("load produce|fetch|session|full|commits|members|idle [flags]"))
	}
	command, o := os.Args[1], parse(os.Args[2:])
	commands := map[string]func(options) (map[string]float64, error){
		"produce": produce, "fetch": fetch, "session": session, "full": full, "idle": idle,
		"commits": commits, "members": members,
	}
	run, known := commands[command]
	if !known {
		fail(fmt.Errorf("no command %q", command))
	}
	result, err := run(o)
	if err != nil {
		fail(err)
	}
	show(result)
}

func parse(args []string) options {
	var o options
	f := flag.NewFlagSet("load", flag.ExitOnError)
	f.StringVar(&o.addr, "addr", "127.0.0.1:9092", "the broker")
	f.StringVar(&o.topic, "topic", "load", "an existing topic")
	f.IntVar(&o.partitions, "partitions", 4, "partitions of the topic")
	f.IntVar(&o.connections, "connections", 1, "connections")
	f.IntVar(&o.inFlight, "in-flight", 1, "requests in flight on each connection")
	f.IntVar(&o.recordBytes, "record-bytes", 100, "bytes of each record's value")
	f.IntVar(&o.batchRecords, "batch-records", 1, "records in each request")
	f.IntVar(&o.acks, "acks", 1, "1 or -1")
	f.IntVar(&o.fetchBytes, "fetch-bytes", 1<<20, "largest part of a partition in one answer")
	seconds := f.Float64("seconds", 4, "how long")
	f.Int64Var(&o.bytesMax, "bytes", 0, "stop after so many bytes of values (0: only after -seconds)")
	f.IntVar(&o.groups, "groups", 1, "groups")
	f.IntVar(&o.groupMembers, "group-members", 5, "members of each group")
	f.Parse(args)
	o.duration = time.Duration(*seconds * float64(time.Second))
	return o
}

func show(result map[string]float64) {
	line, _ := json.Marshal(result)
	fmt.Println(string(line))
}

func fail(err error) {
	line, _ := json.Marshal(map[string]string{"error": err.Error()})
	fmt.Println(string(line))
	os.Exit(1)
}
