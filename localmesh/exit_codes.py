"""Exit codes of the commands and of the runner."""

OK = 0
FAILED = 1
# As the command line itself says it.
WRONG_USAGE = 2
# Something runs where nothing should, or nothing where something should.
WRONG_STATE = 3
KILLED = 130
