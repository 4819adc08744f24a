"""WebSocket services as upstreams."""
