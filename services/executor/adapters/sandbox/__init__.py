"""Sandboxes for untrusted code: bubblewrap (namespaces and seccomp) and gVisor (a user-space kernel)."""
