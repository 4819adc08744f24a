package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// A caller sends one call and says whether it was answered well.
type caller struct {
	clients []*http.Client
	turn    atomic.Uint64
	url     string
	headers http.Header
	grpc    bool
}

func newCaller(o options) (*caller, error) {
	scheme, place, ok := strings.Cut(o.target, "://")
	if !ok {
		return nil, errors.New("the target needs a scheme: http, https, h2c or h2")
	}
	c := &caller{grpc: o.kind == "grpc", headers: http.Header{}}
	var given map[string]string
	if o.header != "" {
		if err := json.Unmarshal([]byte(o.header), &given); err != nil {
			return nil, err
		}
	}
	for name, value := range given {
		c.headers.Set(name, value)
	}
	if c.grpc {
		c.headers.Set("Content-Type", "application/grpc")
		c.headers.Set("Te", "trailers")
	}
	c.url = "http://" + place + o.path
	if scheme == "h2" || scheme == "https" {
		c.url = "https://" + place + o.path
	}
	for range max(1, o.connections) {
		transport, err := newTransport(o, scheme)
		if err != nil {
			return nil, err
		}
		c.clients = append(c.clients, &http.Client{Transport: transport, Timeout: 30 * time.Second})
	}
	return c, nil
}

func newTransport(o options, scheme string) (*http.Transport, error) {
	protocols := new(http.Protocols)
	t := &http.Transport{Protocols: protocols, DisableCompression: true, MaxIdleConnsPerHost: o.callers, MaxIdleConns: o.callers}
	switch scheme {
	case "http":
		protocols.SetHTTP1(true)
		return t, nil
	case "https":
		protocols.SetHTTP1(true)
		config, err := tlsConfig(o)
		t.TLSClientConfig = config
		return t, err
	case "h2c":
		protocols.SetUnencryptedHTTP2(true)
		return t, nil
	case "h2":
		protocols.SetHTTP2(true)
		config, err := tlsConfig(o)
		t.TLSClientConfig = config
		return t, err
	}
	return nil, fmt.Errorf("unknown scheme %q", scheme)
}

func tlsConfig(o options) (*tls.Config, error) {
	authority, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("no certificate in " + o.ca)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: o.authority}, nil
}

// once sends one call and returns the beginning of its answer; anything but a good answer is an error with a short, countable text.
func (c *caller) once(ctx context.Context, body []byte) (string, error) {
	if c.grpc {
		framed := make([]byte, 5+len(body))
		binary.BigEndian.PutUint32(framed[1:], uint32(len(body)))
		copy(framed[5:], body)
		body = framed
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header = c.headers.Clone()
	client := c.clients[c.turn.Add(1)%uint64(len(c.clients))]
	response, err := client.Do(request)
	if err != nil {
		return "", errors.New("transport: " + lastPart(err.Error()))
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", errors.New("transport: " + lastPart(err.Error()))
	}
	if response.StatusCode != http.StatusOK {
		return sampled(answer), fmt.Errorf("http %d", response.StatusCode)
	}
	if c.grpc {
		return sampled(answer), grpcStatus(response)
	}
	return sampled(answer), jsonStatus(answer)
}

func grpcStatus(response *http.Response) error {
	status := response.Trailer.Get("Grpc-Status")
	if status == "" {
		status = response.Header.Get("Grpc-Status")
	}
	if status != "0" {
		return fmt.Errorf("grpc %s", status)
	}
	return nil
}

// jsonStatus looks for an error the cheap way: parsing every answer would make the generator the bottleneck.
func jsonStatus(answer []byte) error {
	if bytes.Contains(answer, []byte(`"error":`)) {
		return errors.New("json-rpc error")
	}
	if bytes.Contains(answer, []byte(`"isError":true`)) {
		return errors.New("tool error")
	}
	return nil
}

func sampled(answer []byte) string { return string(answer[:min(len(answer), 400)]) }

func lastPart(text string) string {
	if at := strings.LastIndex(text, ": "); at >= 0 {
		return text[at+2:]
	}
	return text
}
