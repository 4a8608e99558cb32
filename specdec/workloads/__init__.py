"""What is measured: four kinds of text, six prompts each, written for this or in the public domain.

The code is that of ordinary files with an unfinished function at the end; nothing was chosen to repeat itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.models.tokenizer import Tokenizer
from specdec.workloads.chat import QUESTIONS
from specdec.workloads.code import FILES
from specdec.workloads.shakespeare import SCENES
from specdec.workloads.summary import PASSAGES


@dataclass(frozen=True)
class Workload:
    """texts: the prompts. chat: whether they go through the model's chat template; raw text is continued as it stands."""

    name: str
    texts: tuple[str, ...]
    chat: bool

    def prompts(self, tokenizer: Tokenizer, longest: int | None = None) -> list[list[int]]:
        """Ids of every prompt; of raw text that has more than `longest` its end. Raises ValueError if a chat template is needed and the
        model has none."""
        if self.chat:
            return [tokenizer.encode(tokenizer.chat(text)) for text in self.texts]
        return [ids if longest is None else ids[-longest:] for ids in map(tokenizer.encode, self.texts)]


def _summarise(passage: str) -> str:
    return "Summarize the following text in three sentences.\n\n" + " ".join(passage.split())


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("code", tuple(FILES), chat=False),
        Workload("chat", tuple(QUESTIONS), chat=True),
        Workload("summary", tuple(map(_summarise, PASSAGES)), chat=True),
        Workload("shakespeare", tuple(SCENES), chat=False),
    )
}
