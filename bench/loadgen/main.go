// Loadgen offers calls to one address and prints what came back as one JSON object. Closed loop: each caller sends its next
// call when the last one was answered. Open loop (-rate): calls are due at fixed moments, and latency counts from the moment a
// call was due, so that a server that stalls cannot hide the calls it kept waiting.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type options struct {
	target, path, authority, header, kind string
	expect                                string
	ca, cert, key                         string
	bodies                                string
	callers, connections                  int
	rate                                  float64
	warm, span                            time.Duration
}

type report struct {
	Rps      float64        `json:"rps"`
	P50      float64        `json:"p50_ms"`
	P95      float64        `json:"p95_ms"`
	P99      float64        `json:"p99_ms"`
	Max      float64        `json:"max_ms"`
	Answered int            `json:"answered"`
	Failed   int            `json:"failed"`
	Failures map[string]int `json:"failures,omitempty"`
	Offered  float64        `json:"offered_rps,omitempty"`
	Cpu      float64        `json:"generator_cpu_us_per_call"`
	Sample   string         `json:"sample,omitempty"`
}

func main() {
	var o options
	flag.StringVar(&o.kind, "kind", "grpc", "grpc or json: how an answer is judged")
	flag.StringVar(&o.target, "target", "", "http://host:port (HTTP/1.1), h2c://host:port or h2://host:port (TLS)")
	flag.StringVar(&o.path, "path", "", "what to POST to")
	flag.StringVar(&o.authority, "authority", "", "the name in the server's certificate")
	flag.StringVar(&o.header, "headers", "", "a JSON object of headers to send")
	flag.StringVar(&o.ca, "ca", "", "PEM of the authority that signed the server's certificate")
	flag.StringVar(&o.cert, "cert", "", "PEM of the client's certificate")
	flag.StringVar(&o.key, "key", "", "PEM of the client's key")
	flag.StringVar(&o.bodies, "bodies", "", "a JSON file: [{weight, body (base64), stamp}]; stamp bytes are replaced by a number of the same length")
	flag.StringVar(&o.expect, "expect", "", "a failure that is the wanted answer, such as \"grpc 7\"")
	flag.IntVar(&o.callers, "callers", 16, "how many calls are under way at most")
	flag.IntVar(&o.connections, "connections", 1, "over how many connections HTTP/2 calls are spread")
	flag.Float64Var(&o.rate, "rate", 0, "calls a second; 0 means as fast as answers come")
	flag.DurationVar(&o.warm, "warm", time.Second, "how long to call before measuring")
	flag.DurationVar(&o.span, "span", 4*time.Second, "how long to measure")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	mix, err := readBodies(o.bodies)
	if err != nil {
		return err
	}
	caller, err := newCaller(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.warm+o.span+30*time.Second)
	defer cancel()
	sample, err := caller.once(ctx, mix.next())
	if !wanted(o, err) {
		return fmt.Errorf("the first call ended in %v, not in %q: %s", err, o.expect, sample)
	}
	begin := time.Now()
	tally := newTally(begin.Add(o.warm), begin.Add(o.warm+o.span))
	var before atomic.Int64
	time.AfterFunc(o.warm, func() { before.Store(int64(usedCpu())) })
	var group sync.WaitGroup
	due := schedule(o, begin)
	for range o.callers {
		group.Add(1)
		go func() {
			defer group.Done()
			mine := tally.sheet()
			for {
				start, ok := due()
				if !ok {
					return
				}
				_, err := caller.once(ctx, mix.next())
				if wanted(o, err) {
					err = nil
				} else if err == nil {
					err = errors.New("answered, though it should have failed")
				}
				mine.note(start, time.Now(), err)
			}
		}()
	}
	group.Wait()
	cpu := usedCpu() - time.Duration(before.Load())
	result := tally.report(o)
	if result.Answered > 0 {
		result.Cpu = float64(cpu.Microseconds()) / float64(result.Answered)
	}
	result.Sample = sample
	return json.NewEncoder(os.Stdout).Encode(result)
}

// schedule returns what gives each caller the moment its next call counts from.
func schedule(o options, begin time.Time) func() (time.Time, bool) {
	end := begin.Add(o.warm + o.span)
	if o.rate <= 0 {
		return func() (time.Time, bool) { now := time.Now(); return now, now.Before(end) }
	}
	var turn atomic.Int64
	gap := time.Duration(float64(time.Second) / o.rate)
	return func() (time.Time, bool) {
		at := begin.Add(time.Duration(turn.Add(1)) * gap)
		if !at.Before(end) {
			return at, false
		}
		time.Sleep(time.Until(at))
		return at, true
	}
}

// wanted says whether a call ended the way it should: well, or in the failure that was named.
func wanted(o options, err error) bool {
	if o.expect == "" {
		return err == nil
	}
	return err != nil && err.Error() == o.expect
}

func usedCpu() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
