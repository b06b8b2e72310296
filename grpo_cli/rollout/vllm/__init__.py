"""Generation through vLLM: in the trainer's process or on a server."""
