"""Cannot be imported."""

# Callers see the class name of an exception, which may be any text.
raise type("Wrong\x1b[31m\u202e", (RuntimeError,), {})("secret of the module")
