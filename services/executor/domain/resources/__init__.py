"""Resources of connected servers: who watches them."""
