"""How rows become the text that a model goes on from. No torch in here: `grpo check` renders the same prompts."""
