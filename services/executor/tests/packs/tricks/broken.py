"""Cannot be imported."""

# A class may be called anything, and its name is told to callers.
raise type("Wrong\x1b[31m\u202e", (RuntimeError,), {})("secret of the module")
