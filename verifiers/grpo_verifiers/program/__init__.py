"""Programs judged by tests: the verifier `code`."""

from grpo_verifiers.program.formats import code_row
from grpo_verifiers.program.verifier import CodeOptions, CodeVerifier

__all__ = ["CodeOptions", "CodeVerifier", "code_row"]
