"""What servers behind a view have beside tools: prompts, resources and completion."""
