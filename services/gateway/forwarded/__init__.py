"""JSON-RPC methods that are one unary RPC of a peer. Parameters, checks and descriptions come from the contract."""
