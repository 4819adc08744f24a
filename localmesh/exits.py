"""Exit codes of the commands and of the runner. Wrong usage is 2, as the command line itself says it."""

OK = 0
FAILED = 1
# Something runs where nothing should, or nothing where something should.
WRONG_STATE = 3
KILLED = 130
