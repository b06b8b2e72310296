"""`grpo train` on the quickstart's warm model, with the stopwatch of `target_clock.py`: python own_grpo.py FOLDER STARTED_AT

The run is the command's own (`Job`); added is only the clock. FOLDER is what `bench_target.py` writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from grpo_cli.commands.environment import quiet_libraries
from grpo_cli.commands.opening import without_collecting
from grpo_cli.recipe.reading.load import load


def main() -> None:
    quiet_libraries()
    folder, settings = Path(sys.argv[1]), json.loads((Path(sys.argv[1]) / "settings.json").read_text())
    sets = [
        f"model={folder / 'model'}",
        "warmup=null",
        f"run.dir={folder / 'runs'}",
        f"run.threads={settings['threads']}",
        f"train.seed={settings['seed']}",
        "eval.greedy=false",
    ]
    recipe = load("quickstart", sets)
    with without_collecting():
        from target_clock import EVERY, Stopwatch

        from grpo_cli.display.choose import make_display
        from grpo_cli.errors import Exit
        from grpo_cli.jobs.train.job import Job

    recipe = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"every": EVERY})})
    clock = Stopwatch(float(sys.argv[2]))

    class Race(Job):
        def evaluate(self, step: int) -> None:
            with clock.pause():
                super().evaluate(step)
            if clock.evaluated(self.running.evaluations[-1]["eval/pass@1"]):
                self.interrupts.asked = Exit.TERMINATED

        def _trainer(self, *args: Any) -> Any:
            trainer = super()._trainer(*args)
            trainer.add_callback(clock)
            return trainer

    Race(recipe, label="race", base=None, display=make_display("plain")).run()
    clock.report()


if __name__ == "__main__":
    main()
