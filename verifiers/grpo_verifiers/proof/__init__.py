"""Verifiers of formal proofs: Metamath, Coq."""
