"""The build: Go programs, packages of the distribution and images, each checked against a pinned digest."""
