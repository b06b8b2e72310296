"""An environment in 15 lines: sums, where a wrong answer is told whether it is too small or too large."""

import random


class Hints:
    def reset(self, row, seed):
        self.sum = int(row["answer"])

    def step(self, action):
        if not (action.isdecimal() and len(action) < 6):
            return {"observation": "a number", "valid": False}
        if int(action) == self.sum:
            return {"reward": 1.0, "done": True}
        return "more" if int(action) < self.sum else "less"

    def demonstrate(self):  # for the warm-up of a model that knows nothing: near it, and right now and then
        return str(self.sum + random.choice([-1, 0, 0, 1]))
