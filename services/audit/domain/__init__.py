"""What the log is, without any word about how it is reached or stored."""
