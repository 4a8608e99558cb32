"""What a generation returns: its rounds, their sums, its text."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Round:
    """One target forward.

    tokens: the new ids, in order: the accepted ones, then one *recovered* (after a rejection), *bonus* (after a full acceptance)
        or *plain* (nothing was drafted) token. Cut at a stop token or the budget.
    accepted: how many of `tokens` were drafted.
    drafted: tokens on the longest path that was proposed.
    last: what the final token is: "recovered", "bonus", "plain", or "accepted" if the text ended inside the accepted part.
    seconds: time spent on this round.
    text: what it adds to the text; those of all rounds make `Generation.text`. Of a character whose end is still to come nothing is
        shown before that or the text's end. None if the model has no tokenizer.
    """

    tokens: list[int]
    accepted: int
    drafted: int
    last: str
    seconds: float
    text: str | None = None

    @property
    def judged(self) -> int:
        """Drafted tokens on which the rule decided: the accepted ones, and the one at which it stopped. What was drafted after a
        rejection was never reached."""
        return self.accepted + (self.last == "recovered")


@dataclass
class Stats:
    """Sums over the rounds. Tokens behind a stop token or the budget are not counted as accepted, since nobody got them."""

    forwards: int = 0
    drafted: int = 0
    judged: int = 0
    accepted: int = 0
    emitted: int = 0
    seconds: float = 0.0

    def add(self, round: Round) -> None:
        self.forwards += 1
        self.drafted += round.drafted
        self.judged += round.judged
        self.accepted += round.accepted
        self.emitted += len(round.tokens)
        self.seconds += round.seconds

    @property
    def tokens_per_forward(self) -> float:
        """τ; 1.0 for plain decoding."""
        return self.emitted / self.forwards if self.forwards else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens, as most programs report it. Below `alpha`: tokens after a rejection count as drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def alpha(self) -> float:
        """Accepted over judged tokens, which estimates the α of the theory; 0.0 if nothing was judged."""
        return self.accepted / self.judged if self.judged else 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.emitted / self.seconds if self.seconds else 0.0


@dataclass
class Generation:
    """tokens: the new ids, a stop token included if one ended the text. text: what follows the prompt, a space before its first word
    included, so that prompt + text is the text of all ids; None if the model has no tokenizer."""

    tokens: list[int]
    text: str | None
    stats: Stats
    rounds: list[Round] = field(repr=False)
