"""What tasks share whose questions are lists of whole numbers, a row of bits each."""

from __future__ import annotations

from ham.tasks.base import Task, all_in_range
from ham.tasks.codecs import bits_of, number_of
from ham.tasks.text import integers


class Numbers(Task):
    """A question is a list of numbers of `features` bits."""

    def encode(self, question):
        return bits_of(all_in_range(question, self.features, "item"), self.features)

    def decode(self, rows):
        return number_of(rows).tolist()

    def parse(self, text):
        return integers(text)

    def show(self, question):
        return " ".join(map(str, question))
