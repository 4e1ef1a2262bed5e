package main

import (
	"slices"
	"time"
)

// latencies are the times of one connection, or of several put together.
type latencies struct {
	micros  []uint32
	seconds float64
}

func (l *latencies) add(d time.Duration) { l.micros = append(l.micros, uint32(d/time.Microsecond)) }
func (l *latencies) count() int          { return len(l.micros) }

func (l *latencies) summary() map[string]float64 {
	slices.Sort(l.micros)
	return map[string]float64{
		"requests": float64(l.count()), "seconds": l.seconds, "per_second": float64(l.count()) / l.seconds,
		"p50_ms": l.percentile(0.50), "p99_ms": l.percentile(0.99), "p999_ms": l.percentile(0.999), "mean_ms": l.mean(),
	}
}

func (l *latencies) percentile(share float64) float64 {
	if l.count() == 0 {
		return 0
	}
	return float64(l.micros[int(share*float64(l.count()-1))]) / 1000
}

func (l *latencies) mean() float64 {
	if l.count() == 0 {
		return 0
	}
	var sum uint64
	for _, micros := range l.micros {
		sum += uint64(micros)
	}
	return float64(sum) / float64(l.count()) / 1000
}

// onConnections runs the same work on n connections at once and puts what they saw together; the first error wins.
func onConnections(n int, work func(index int, l *latencies) error) (*latencies, error) {
	parts := make([]latencies, n)
	errs := make(chan error, n)
	began := time.Now()
	for i := 0; i < n; i++ {
		go func(i int) { errs <- work(i, &parts[i]) }(i)
	}
	var failure error
	for i := 0; i < n; i++ {
		if err := <-errs; err != nil && failure == nil {
			failure = err
		}
	}
	all := &latencies{seconds: time.Since(began).Seconds()}
	for _, part := range parts {
		all.micros = append(all.micros, part.micros...)
	}
	return all, failure
}
