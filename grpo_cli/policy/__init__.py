"""The model that is trained and what belongs to it: tokenizer, device, precision, end ids, warm-up, reference."""
