"""One run of `grpo train`, from the checked recipe to the end card."""
