"""The scan of a manifest's texts and names for what a person would not see and a model might obey. Pure."""
