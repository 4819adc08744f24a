package main

import (
	"sort"
	"sync"
	"time"
)

// A tally gathers what the callers saw. Each writes on a sheet of its own, so that they do not wait for each other.
type tally struct {
	from, until time.Time
	mutex       sync.Mutex
	sheets      []*sheet
}

type sheet struct {
	from, until time.Time
	latencies   []time.Duration
	failures    map[string]int
}

func newTally(from, until time.Time) *tally { return &tally{from: from, until: until} }

func (t *tally) sheet() *sheet {
	mine := &sheet{from: t.from, until: t.until, failures: map[string]int{}}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.sheets = append(t.sheets, mine)
	return mine
}

// note counts a call that began within the span; what began in it counts however late it ends.
func (s *sheet) note(start, end time.Time, err error) {
	if start.Before(s.from) || !start.Before(s.until) {
		return
	}
	if err != nil {
		s.failures[err.Error()]++
		return
	}
	s.latencies = append(s.latencies, end.Sub(start))
}

func (t *tally) report(o options) report {
	var all []time.Duration
	result := report{Failures: map[string]int{}, Offered: o.rate}
	for _, s := range t.sheets {
		all = append(all, s.latencies...)
		for reason, count := range s.failures {
			result.Failures[reason] += count
			result.Failed += count
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	result.Answered = len(all)
	result.Rps = float64(len(all)) / o.span.Seconds()
	if len(all) > 0 {
		at := func(q float64) float64 {
			return float64(all[min(len(all)-1, int(q*float64(len(all))))].Nanoseconds()) / 1e6
		}
		result.P50, result.P95, result.P99, result.Max = at(0.50), at(0.95), at(0.99), at(1)
	}
	return result
}
