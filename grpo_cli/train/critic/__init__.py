"""A critic next to the policy: its network, its update, and token advantages from its values."""
