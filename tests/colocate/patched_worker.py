"""Imported by vLLM's server in the process that holds the model: `--worker-extension-cls patched_worker.Worker`."""

from __future__ import annotations

from without_cuda import keep_plain_weights, send_over_gloo

keep_plain_weights(setattr)
send_over_gloo(setattr)


class Worker:
    """Nothing to add to vLLM's worker; it is named so that this file is imported before one is made."""
