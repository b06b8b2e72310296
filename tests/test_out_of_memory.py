"""Memory that a card or the machine does not have: a sentence with figures and a way out, exit code 4."""

from __future__ import annotations

import pytest
import torch

from grpo_cli.errors import Exit, out_of_memory

CARD = (
    "CUDA out of memory. Tried to allocate 312.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 213.62 MiB is free. "
    "Process 895 has 20.24 GiB memory in use. Process 900 has 19.82 GiB memory in use. Including non-PyTorch memory, this "
    "process has 21.09 GiB memory in use."
)


def test_a_full_card_is_a_sentence_with_what_it_holds() -> None:
    told = out_of_memory(torch.OutOfMemoryError(CARD))
    assert told is not None and told.code is Exit.SETUP
    assert told.mistakes[0].message == (
        "out of memory on the GPU; 312.00 MiB more were asked for; 213.62 MiB of 139.80 GiB are free;"
        " 2 other processes hold 40.1 GiB"
    )
    assert "sample.micro_batch" in told.hint and "--resume" in told.hint


@pytest.mark.parametrize(
    "err",
    [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8")],
)
def test_full_ram_is_one_too(err: Exception) -> None:
    told = out_of_memory(err)
    assert told is not None and told.mistakes[0].message == "out of memory"


def test_a_bug_keeps_its_traceback() -> None:
    assert out_of_memory(RuntimeError("shape mismatch")) is None


def test_a_run_that_the_card_has_no_room_for_ends_with_4_and_is_marked(
    monkeypatch: pytest.MonkeyPatch, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    from grpo_cli.app import main
    from grpo_cli.jobs.train import job

    def burst(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError(CARD)

    monkeypatch.setattr(job, "open_train_job", burst)
    monkeypatch.setattr(
        "sys.argv", ["grpo", "train", "quickstart", "--display", "none", "--set", f"run.dir={tmp_path}"]
    )
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 4
    told = capsys.readouterr().err
    assert "error: out of memory on the GPU" in told and "Traceback" not in told
