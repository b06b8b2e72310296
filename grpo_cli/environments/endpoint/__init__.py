"""The endpoint that harnesses of others ask for turns of our model: what they send, and the token ids behind it."""
