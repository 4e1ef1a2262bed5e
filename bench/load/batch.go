package main

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand"
	"time"
)

const (
	batchHeaderBytes = 61
	crcPosition      = 17
	attributes       = 21 // where the checksummed part begins
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batch is one uncompressed record batch of version 2, with incompressible values and no keys.
func batch(records, valueBytes int) []byte {
	now := time.Now().UnixMilli()
	b := make([]byte, batchHeaderBytes, batchHeaderBytes+records*(valueBytes+16))
	value := make([]byte, valueBytes)
	random := rand.New(rand.NewSource(1))
	for i := 0; i < records; i++ {
		random.Read(value)
		b = appendRecord(b, i, value)
	}
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2 // magic
	binary.BigEndian.PutUint32(b[23:], uint32(records-1))
	binary.BigEndian.PutUint64(b[27:], uint64(now))
	binary.BigEndian.PutUint64(b[35:], uint64(now))
	for i := 43; i < 57; i++ {
		b[i] = 0xff // no producer id, epoch or sequence
	}
	binary.BigEndian.PutUint32(b[57:], uint32(records))
	binary.BigEndian.PutUint32(b[crcPosition:], crc32.Checksum(b[attributes:], castagnoli))
	return b
}

func appendRecord(b []byte, offsetDelta int, value []byte) []byte {
	body := make([]byte, 0, len(value)+16)
	body = append(body, 0)                               // attributes
	body = binary.AppendVarint(body, 0)                  // timestamp delta
	body = binary.AppendVarint(body, int64(offsetDelta)) //
	body = binary.AppendVarint(body, -1)                 // no key
	body = binary.AppendVarint(body, int64(len(value)))  //
	body = append(body, value...)                        //
	body = binary.AppendVarint(body, 0)                  // no headers
	return append(binary.AppendVarint(b, int64(len(body))), body...)
}

// wholeBatches walks the batches of a fetched part: the bytes of those that are complete, and the offset after them.
func wholeBatches(data []byte) (size int, next int64) {
	next = -1
	for len(data)-size >= batchHeaderBytes {
		rest := data[size:]
		length := 12 + int(binary.BigEndian.Uint32(rest[8:]))
		if length > len(rest) {
			break
		}
		next = int64(binary.BigEndian.Uint64(rest)) + int64(binary.BigEndian.Uint32(rest[23:])) + 1
		size += length
	}
	return size, next
}
