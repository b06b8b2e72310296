"""Verifiable-reward fine-tuning of language models from the command line."""

TYPE_CHECKING = False  # known to the type checker; importing `typing` would delay Ctrl-C

if TYPE_CHECKING:
    from grpo_verifiers import __version__ as __version__
else:

    def __getattr__(name: str) -> str:
        """`__version__`, which both distributions share; asked for when it is needed, since the command must begin at once."""
        if name != "__version__":
            raise AttributeError(f"module `grpo_cli` has no `{name}`")
        from grpo_verifiers import __version__

        return __version__
