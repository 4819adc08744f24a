"""Cannot be imported."""

raise RuntimeError("secret of the module")
