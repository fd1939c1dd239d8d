"""Listeners of answers in the making."""

from hlas.agent import Answer


class Notebook:
    """Writes down what it is given."""

    def __init__(self) -> None:
        self.text = ""
        self.frames: list[str] = []

    def say(self, piece: str) -> None:
        self.text += piece

    def show(self, frame: str) -> None:
        self.frames.append(frame)

    def withdraw(self) -> None:
        self.text = ""

    def leave(self, answer: Answer) -> None:
        self.left = answer
