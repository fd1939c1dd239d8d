"""Listeners of answers in the making."""


class Notebook:
    """Writes down what it is given."""

    def __init__(self) -> None:
        self.text = ""
        self.frames: list[str] = []

    def say(self, piece: str) -> None:
        self.text += piece

    def show(self, frame: str) -> None:
        self.frames.append(frame)
