"""What a vLLM server is asked before a run and how its loss ends one, with a server that only looks like vLLM."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
import torch

from grpo_cli.errors import Exit, SetupError
from grpo_cli.policy.model import byte_tokenizer, tiny_llama
from grpo_cli.recipe.sections.method import Sample
from grpo_cli.rollout.vllm import server as vllm_server
from grpo_cli.rollout.vllm.server import (
    Server,
    ServerLost,
    ServerWatch,
    address,
    check_model,
    find_server,
    lost_in_words,
    server_of,
)

CONFIG = {
    "weight_transfer_config": {"backend": "nccl"},
    "model_config": {"logprobs_mode": "processed_logprobs", "generation_config": "vllm"},
}


class Fake:
    """Answers by path: None is 404, a number that status, a function a value made of the request, else JSON."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "/health": {},
            "/v1/models": {"data": [{"id": "m", "root": "nowhere/such-model", "max_model_len": 256}]},
            "/server_info": {"vllm_config": CONFIG},
            "/tokenize": lambda asked: {
                "tokens": byte_tokenizer()(asked["prompt"], add_special_tokens=False).input_ids
            },
        }
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = fake.answers.get(self.path.split("?")[0], 404)
                if callable(answer):
                    answer = answer(json.loads(body) if body else None)
                is_status = isinstance(answer, int)
                self.send_response(answer if is_status else 200)
                self.end_headers()
                self.wfile.write(b"" if is_status else json.dumps(answer).encode())

            do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        if self.thread.is_alive():
            self.http.shutdown()
            self.http.server_close()
            self.thread.join()

    def settings(self, **more: Any) -> dict[str, Any]:
        with socket.socket() as free:
            free.bind(("", 0))
            group_port = free.getsockname()[1]
        host = {"server_host": "127.0.0.1", "server_port": self.port}
        return {"mode": "server", **host, "group_port": group_port, "server_timeout": 0.2, **more}

    def found(self, **more: Any) -> Server:
        return find_server(self.settings(**more), lambda waited, most: None)

    def refusal(self, **more: Any) -> SetupError:
        with pytest.raises(SetupError) as caught:
            self.found(**more)
        return caught.value


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(vllm_server, "EVERY_S", 0.02)
    made = Fake()
    yield made
    made.close()


def test_a_server_that_is_up_tells_its_context_and_model(fake: Fake) -> None:
    url = f"http://127.0.0.1:{fake.port}"
    assert fake.found() == Server(url, "m", 256, "nowhere/such-model")
    assert fake.found(server_base_url=url + "/", server_port=1).url == url


def test_the_address_is_that_of_trl() -> None:
    assert address({}) == "http://0.0.0.0:8000"
    assert address({"server_host": "h", "server_port": 1}) == "http://h:1"


def test_no_server_there_is_said_with_the_time_waited_and_how_to_start_one(fake: Fake) -> None:
    fake.close()
    began = time.monotonic()
    err = fake.refusal(server_timeout=0.3)
    assert time.monotonic() - began < 2
    assert err.code == Exit.SETUP
    assert str(err) == f"no vLLM server is up at http://127.0.0.1:{fake.port} after 0s: [Errno 111] Connection refused"
    assert "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL" in err.hint
    assert "`server_timeout`, the seconds to wait" in err.hint


def test_a_server_that_never_answers_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    monkeypatch.setattr(vllm_server, "LOOK_S", 0.1)
    fake.answers["/health"] = lambda asked: time.sleep(1) or {}
    assert "timed out" in str(fake.refusal(server_timeout=0.3))


def test_a_server_that_still_starts_is_waited_for(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "AGAIN_S", 0.05)
    states = iter([503, 200])
    fake.answers["/health"] = lambda asked: next(states)
    heard: list[float] = []
    find_server(fake.settings(server_timeout=30), lambda waited, most: heard.append(most))
    assert heard == [30]


REFUSED: dict[str, tuple[str, Any, str]] = {
    "some other program": ("/v1/models", 404, "is no vLLM server: /v1/models answers 404"),
    "no model": ("/v1/models", {"data": []}, "is no vLLM server"),
    "no dev mode": ("/server_info", 404, "was not started in dev mode"),
    "no configuration": ("/server_info", {}, "does not say how it was started: 'vllm_config'"),
    "broken": ("/server_info", 500, "does not say how it was started: /server_info?config_format=json answers 500"),
    "no transfer": (
        "/server_info",
        {"vllm_config": CONFIG | {"weight_transfer_config": None}},
        "takes no weights while it runs",
    ),
    "raw": (
        "/server_info",
        {"vllm_config": CONFIG | {"model_config": {"logprobs_mode": "raw_logprobs"}}},
        "gives `raw_logprobs`, which leave temperature and truncation out",
    ),
    "the model's defaults": (
        "/server_info",
        {"vllm_config": CONFIG | {"model_config": CONFIG["model_config"] | {"generation_config": "auto"}}},
        "from the model's `generation_config.json`",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_server_that_was_started_otherwise_is_refused_in_words(fake: Fake, case: str) -> None:
    path, answer, said = REFUSED[case]
    fake.answers[path] = answer
    err = fake.refusal()
    assert said in str(err)
    assert err.hint.startswith("start it with VLLM_SERVER_DEV_MODE=1 vllm serve m") == (
        path == "/server_info" and case not in ("broken", "no configuration")
    )


def test_a_taken_port_for_the_weights_is_named(fake: Fake) -> None:
    with socket.create_server(("", 0)) as taken:
        err = fake.refusal(group_port=taken.getsockname()[1])
    assert "Address already in use" in str(err)
    assert "`sample.vllm.group_port`" in err.hint


def test_only_server_mode_looks_for_one(fake: Fake) -> None:
    def asked(engine: Any, **vllm: Any) -> Server | None:
        return server_of(Sample(engine=engine, vllm=vllm), lambda phase, done, total: None)

    assert asked("auto") is None
    assert asked("vllm", mode="colocate") is None
    assert asked("vllm", **fake.settings()) == fake.found()


def test_a_server_with_the_same_model_passes(fake: Fake, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    model = tiny_llama(tokenizer, 0)
    check_model(fake.found(), model, tokenizer, "1+1=?")  # its folder cannot be read from here
    model.save_pretrained(tmp_path)
    fake.answers["/v1/models"]["data"][0]["root"] = str(tmp_path)
    check_model(fake.found(), model, tokenizer, "1+1=?")


def test_a_server_with_another_model_is_refused(fake: Fake, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    model = tiny_llama(tokenizer, 0)
    model.save_pretrained(tmp_path)
    fake.answers["/v1/models"]["data"][0]["root"] = str(tmp_path)
    hidden = model.config.hidden_size
    model.config.hidden_size += 1
    said = rf"holds another model, `{tmp_path}`: its `hidden_size` is {hidden}, that of `model` {hidden + 1}"
    with pytest.raises(SetupError, match=said):
        check_model(fake.found(), model, tokenizer, "1+1=?")


def test_a_server_with_another_tokenizer_is_refused(fake: Fake) -> None:
    tokenizer = byte_tokenizer()
    fake.answers["/tokenize"] = {"tokens": [1, 2, 3]}
    with pytest.raises(SetupError, match="has another tokenizer"):
        check_model(fake.found(), tiny_llama(tokenizer, 0), tokenizer, "1+1=?")


def test_what_trl_raises_of_the_server_is_told_in_words(fake: Fake) -> None:
    server = fake.found()
    fake.close()
    with (
        pytest.raises(ServerLost, match=r"lost the vLLM server at .*: no answer for 0s: .*Connection refused"),
        lost_in_words(server),
    ):
        requests.get(server.url, timeout=1)
    with pytest.raises(ServerLost, match="Request failed: 400, too long") as caught, lost_in_words(server):
        raise Exception("Request failed: 400,\n too long")
    assert caught.value.code == Exit.TRAINING
    with pytest.raises(ServerLost, match="nobody came"), lost_in_words(server):
        raise torch.distributed.DistStoreError("nobody came")
    with pytest.raises(ServerLost, match="NCCL error: remote"), lost_in_words(server):
        raise RuntimeError("NCCL error: remote process exited")
    with pytest.raises(ValueError, match="a bug"), lost_in_words(server):
        raise ValueError("a bug")
    with pytest.raises(requests.ConnectionError), lost_in_words(None):
        raise requests.ConnectionError("no server of ours")


def given_up(fake: Fake, meanwhile: Callable[[], None]) -> list[Any]:
    """What a watch with short times says while the server is waited for and `meanwhile` happens to it."""
    said: list[Any] = []
    heard = threading.Event()

    def give_up(err: Any) -> None:
        said.append(err)
        heard.set()

    watch = ServerWatch(fake.found(), 0.2, give_up)
    with watch.watching():
        meanwhile()
        heard.wait(1.0)
    return said


def test_a_server_that_goes_while_it_is_waited_for_ends_the_wait(fake: Fake) -> None:
    (lost,) = given_up(fake, fake.close)
    assert isinstance(lost, ServerLost)
    assert "no answer for 0s: [Errno 111] Connection refused" in str(lost)


def test_a_server_that_stands_still_ends_the_wait(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "LOOK_S", 0.1)
    (lost,) = given_up(fake, lambda: fake.answers.update({"/health": lambda asked: time.sleep(0.5) or {}}))
    assert "timed out" in str(lost)


def test_a_server_that_answers_may_take_its_time(fake: Fake) -> None:
    assert given_up(fake, lambda: time.sleep(0.5)) == []


def test_a_process_without_a_parent_of_ours_ends_with_the_message_and_code() -> None:
    program = "from grpo_cli.distributed.launch import end_rank; end_rank('error: lost it', 5)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (5, "error: lost it\n")
