"""The world of this recipe: sums with a tool that adds two numbers. No import of grpo is needed."""

import random
import re


class Sum:
    """`12+34` asks the tool, `=46` is the answer and ends the episode."""

    def reset(self, row: dict[str, list[int]], seed: int) -> None:
        """A new episode of a row; a text that is returned stands behind the prompt."""
        self.numbers, self.last, self.added = row["numbers"], row["numbers"][0], 1

    def step(self, action: str) -> str | dict[str, object]:
        """One turn of the model: a text is what it sees next, a dict may say more."""
        action = action.strip().replace(" ", "")
        if re.fullmatch(r"=\d{1,7}", action):
            return {"reward": float(int(action[1:]) == sum(self.numbers)), "done": True}
        if re.fullmatch(r"\d{1,6}\+\d{1,6}", action):
            a, b = action.split("+")
            self.last, self.added = int(a) + int(b), self.added + 1
            return str(self.last)
        return {"observation": "reply with A+B or =N", "valid": False}

    def demonstrate(self) -> str:
        """For a warm-up only: what one may say now. Often too early an answer, so that there is something to learn."""
        if self.added >= len(self.numbers) or random.random() < 0.4:
            return f"={self.last}"
        return f"{self.last}+{self.numbers[self.added]}"
