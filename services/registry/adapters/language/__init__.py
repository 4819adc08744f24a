"""The embedding model and the tokenizers, in a subprocess that runs on demand."""
