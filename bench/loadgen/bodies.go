package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// A body is what one call sends. Where it holds the stamp, each call sends a number of its own instead, of the same length, so
// that lengths inside the message stay right.
type body struct {
	Weight int    `json:"weight"`
	Body   []byte `json:"body"`
	Stamp  string `json:"stamp"`
	at     int
}

// A mix deals bodies in proportion to their weights, in a fixed order: two runs send the same.
type mix struct {
	deck   []*body
	turn   atomic.Uint64
	offset uint64
}

func readBodies(path string) (*mix, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var bodies []*body
	if err := json.Unmarshal(text, &bodies); err != nil {
		return nil, err
	}
	m := &mix{offset: uint64(os.Getpid())}
	for _, b := range bodies {
		b.at = -1
		if b.Stamp != "" {
			if b.at = bytes.Index(b.Body, []byte(b.Stamp)); b.at < 0 {
				return nil, errors.New("a body does not hold its stamp")
			}
		}
		for range max(1, b.Weight) {
			m.deck = append(m.deck, b)
		}
	}
	if len(m.deck) == 0 {
		return nil, errors.New("there is no body to send")
	}
	return m, nil
}

func (m *mix) next() []byte {
	turn := m.turn.Add(1)
	// A stride that shares no factor with the deck spreads the rare bodies among the frequent ones.
	b := m.deck[(turn*7919)%uint64(len(m.deck))]
	if b.at < 0 {
		return b.Body
	}
	sent := bytes.Clone(b.Body)
	copy(sent[b.at:b.at+len(b.Stamp)], fmt.Sprintf("%0*d", len(b.Stamp), m.offset*1_000_000_000+turn))
	return sent
}
