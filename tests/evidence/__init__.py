"""The log and its verifier, two implementations that share no code, against each other."""
