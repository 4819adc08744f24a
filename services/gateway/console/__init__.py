"""The console: pages for people, served under `/console`."""
