"""The language model and the tokenizers, in a process of their own that lives only while it is needed."""
