"""`run.webhook`: one POST of JSON when the run ends or an alarm is raised. A hook that fails is noted; the run goes on.

{"schema": 1, "event": "end" | "alarm" | "failed", "run": NAME, "path": FOLDER, "text": …, …}
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from grpo_cli.display.protocol import Display
from grpo_cli.errors import SetupError
from grpo_cli.run.folder import RunFolder
from grpo_cli.text import Json, strict_json

SCHEMA = 1
FROM_ENVIRONMENT = "env:"
TIMEOUT_S = 5.0
"""Seconds for the connection, and for each answer of the other side."""
PATIENCE_S = 10.0
"""Seconds after which the run continues without an answer: the name server may hang, too."""


def hook_url(named: str) -> str:
    """The address, read from the environment where the recipe has `env:NAME`: a secret address stays out of run folders.

    Raises:
        SetupError: the variable is not set, or holds no address.
    """
    if not named.startswith(FROM_ENVIRONMENT):
        return named
    variable = named.removeprefix(FROM_ENVIRONMENT)
    found = os.environ.get(variable, "")
    if not re.fullmatch(r"https?://[^\s/]+\S*", found):
        said = "is not set" if not found else "holds no http:// or https:// address"
        raise SetupError(f"`run.webhook` names the variable {variable}, which {said}", place="run.webhook")
    return found


def tell_webhook(
    named: str | None, event: str, run: RunFolder, display: Display, text: str, more: Mapping[str, Json]
) -> None:
    """Post the event and wait for the answer, at most `PATIENCE_S`. Without a hook this does nothing."""
    if named is None:
        return
    try:
        url = hook_url(named)
    except SetupError as err:  # a failing hook must not hide the event itself
        display.note("warn", f"{event}: {err}", "")
        return
    body = {"schema": SCHEMA, "event": event, "run": run.name, "path": str(run.path), "text": text, **more}
    data = strict_json(body).encode()
    failure = [f"does not answer within {PATIENCE_S:.0f} s"]

    def send() -> None:
        try:
            request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="POST")
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):
                failure[0] = ""
        except urllib.error.HTTPError as err:
            failure[0] = f"answers {err.code}"
        except OSError as err:
            failure[0] = f"cannot be reached: {getattr(err, 'reason', None) or err}"
        except (ValueError, http.client.HTTPException) as err:
            # the library's message quotes the address, which may be a secret
            failure[0] = f"cannot be reached: {type(err).__name__}"

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    if why := failure[0]:
        host = None
        with contextlib.suppress(ValueError):
            host = urlsplit(url).hostname
        display.note("warn", f"`run.webhook` did not receive `{event}`: {host or 'the webhook'} {why}", "")
