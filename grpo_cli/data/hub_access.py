"""Whether the Hugging Face hub answers. Its libraries try a name that does not answer again and again, a minute and more for a
model; here it is asked once, for seconds, and where it does not answer they are told to work from their cache."""

from __future__ import annotations

import os
import socket
import sys
import threading
from urllib.parse import urlsplit
from urllib.request import getproxies

HOME = "https://huggingface.co"
SECONDS = 4.0
"""How long an answer is waited for; a name server that does not answer counts too."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TOLD = "this machine is told to stay offline"
UNREACHABLE = "the hub cannot be reached"

_found: dict[str, bool] = {}
"""Whether an address answered this process."""


def hub_is_there(seconds: float = SECONDS) -> bool:
    """Whether the hub, or the proxy that stands before it, takes a connection; asked once in a process.

    Args:
        seconds: waited for at most.
    """
    home = os.environ.get("HF_ENDPOINT", HOME)
    proxies = getproxies()
    address = proxies.get(urlsplit(home).scheme) or proxies.get("all") or home
    if address not in _found:
        _found[address] = _answers(address, seconds)
    return _found[address]


def why_offline() -> str | None:
    """Why this process does not ask the hub, by its environment alone; None where it does."""
    if not any(os.environ.get(name, "").lower() in ("1", "true", "on", "yes") for name in OFFLINE):
        return None
    return UNREACHABLE if False in _found.values() else TOLD


def leave_hub() -> str | None:
    """Where the hub does not answer, its libraries use their cache from now on; why they do, None where they do not."""
    why = why_offline()
    if why is not None or hub_is_there():
        return why
    os.environ[OFFLINE[0]] = "1"
    for module in ("huggingface_hub.constants", "datasets.config"):
        if module in sys.modules:  # it has read the environment already
            vars(sys.modules[module]).update(HF_HUB_OFFLINE=True, HF_DATASETS_OFFLINE=True)
    return UNREACHABLE


def _answers(address: str, seconds: float) -> bool:
    parts = urlsplit(address if "//" in address else f"//{address}")
    port = parts.port or (80 if parts.scheme == "http" else 443)
    found: list[bool] = []

    def ask() -> None:
        try:
            socket.create_connection((parts.hostname or "", port), seconds).close()
        except OSError:
            return
        found.append(True)

    # a name server that is not there makes the lookup hang, which no time limit of a socket ends
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return bool(found)
