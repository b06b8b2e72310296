"""A critic in addition to the policy: what it is made of, how it learns, and advantages of tokens from its values."""
