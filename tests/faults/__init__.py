"""What takes minutes: long runs under load with processes killed at random moments. `make test-faults` runs them."""
