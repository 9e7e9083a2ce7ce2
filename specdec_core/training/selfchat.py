"""The target's own conversations: it writes the user's turns from the bare template, then answers them.

A drafter has to guess what the target says, so the target's own text is what it learns from (the papers of Medusa,
arXiv:2401.10774, section 2.3.2, and EAGLE do the same or use human conversations). The user's turn needs no data set
either: after the template's header for it, a chat model continues with a question (Magpie, arXiv:2406.08464).

A turn is a run of the engine's loop. The conversations of a wave advance together, their rows in one forward.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from tqdm import tqdm

from ..core.contract import LanguageModel, LMOutput
from ..core.engine import Run, together
from ..core.rng import spawn
from ..core.sampling import Sampling
from ..core.stopping import Stop
from ..core.tree import DraftTree
from ..model.batch import forward_together
from ..model.chat import Tokenizer
from ..model.lm import CachedLM
from .openings import FIRST, LATER, TASKS, task_prompt

# What a token is: given by the template or a prompt, written as the user, written as the answer, part of a loop.
GIVEN, USER, ANSWER, LOOP = range(4)
LONGEST_QUESTION = 64  # tokens of a user's turn
LOOP_TOKENS, _LONGEST_PERIOD = 30, 24


@dataclass(frozen=True)
class Template:
    """A chat template, cut at the places where somebody begins to write."""

    start: list[int]  # up to the first user's turn
    to_answer: list[int]  # from the end of a user's turn to the answer; begins with the end-of-turn token
    to_user: list[int]  # from the end of an answer to the next user's turn

    @property
    def end(self) -> int:
        """The token that ends a turn."""
        return self.to_answer[0]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Template:
        """The pieces of a tokenizer's chat template.

        Raises:
            ValueError: for a tokenizer without one, or whose turns do not end with a token of their own.
        """
        if not tokenizer.chat_template:
            raise ValueError(f"{tokenizer.name_or_path} has no chat template: it cannot write both sides of a chat")
        marks = {"@one@": "user", "@two@": "assistant", "@three@": "user"}
        messages = [{"role": role, "content": mark} for mark, role in marks.items()]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        pieces = []
        for mark in marks:
            piece, _, text = text.partition(mark)
            pieces.append(tokenizer(piece, add_special_tokens=False)["input_ids"])
        pieces.append(tokenizer(text, add_special_tokens=False)["input_ids"])
        start, to_answer, to_user, again = pieces
        if to_answer != again or to_answer[0] != to_user[0]:
            raise ValueError(f"the chat template of {tokenizer.name_or_path} does not end every turn in one way")
        return cls(start, to_answer, to_user)


class Turn(Run):
    """A run that goes on with a text that its model has read: only what is new in it is read first."""

    def begin(self) -> None:
        new = self.context[self.lm.length : -1]
        if not self.lm.length:
            super().begin()
            return
        if new and not self.done:
            self.lm.forward(DraftTree.chain(new[0], new[1:]))
            self.lm.commit(range(len(new)))
        self._hold()


@dataclass
class Chat:
    """One conversation in the making: its turns are runs, one after the other.

    Attributes:
        lm: the model, with a cache of its own, which is empty at first.
        template: of the chat.
        encode: text to ids, without special tokens.
        rng: chooses what is put into the user's mouth, and seeds the sampling.
        length: tokens of the whole conversation.
        temperature: of the answers.
        given: tokens that are put in front of the next turn.
        speaker: who writes it, `USER` or `ANSWER`.
        tokens, roles: of all turns that are over, and what was given before the present one.
        turn: the run that writes the present one; of no tokens once the conversation is full.
    """

    lm: LanguageModel
    template: Template
    encode: Callable[[str], list[int]]
    rng: random.Random
    length: int
    temperature: float
    given: list[int]
    speaker: int = USER
    tokens: list[int] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)

    def __post_init__(self):
        self._streams = spawn(self.rng.getrandbits(64))
        self._begin_turn()

    @property
    def full(self) -> bool:
        return len(self.tokens) == self.length

    def _begin_turn(self) -> None:
        self._keep(self.given, GIVEN)
        room, user = self.length - len(self.tokens), self.speaker == USER
        self.turn = Turn(
            self.lm,
            self.tokens,
            max_new_tokens=min(room, LONGEST_QUESTION) if user else room,
            sampling=Sampling(1.0 if user else self.temperature, top_k=50, top_p=0.95),
            stop=Stop(self.template.end),
            rngs=self._streams,
        )
        self.turn.begin()

    def listen(self) -> None:
        """After a step of the present turn: if it is over, or goes round in a loop, begin the next."""
        written = self.turn.context[len(self.tokens) :]
        ended, period = written[-1] == self.template.end, loop(written)
        if not (self.turn.done or period):
            return
        self._keep(written, self.speaker)
        if period and not ended:  # all but its first round is marked; for the model, the turn is ended
            marked = LOOP_TOKENS - period
            self.roles[-marked:] = [LOOP] * marked
        if self.speaker == USER:
            self.speaker, self.given = ANSWER, self.template.to_answer[ended:]
        else:
            self.speaker, self.given = USER, self.template.to_user[ended:] + self.encode(self.rng.choice(LATER))
        self._begin_turn()

    def _keep(self, tokens: Sequence[int], role: int) -> None:
        tokens = tokens[: self.length - len(self.tokens)]
        self.tokens += tokens
        self.roles += [role] * len(tokens)


def loop(tokens: Sequence[int]) -> int:
    """The period with which the last `LOOP_TOKENS` tokens repeat (at least once over), or 0.

    Example:
        >>> loop([7, 8, 9] * 10), loop([1, 2] * 14), loop(range(40))
        (3, 0, 0)
    """
    tail = tokens[-LOOP_TOKENS:]
    periods = range(1, min(_LONGEST_PERIOD, LOOP_TOKENS // 2) + 1) if len(tail) == LOOP_TOKENS else ()
    return next((period for period in periods if tail[period:] == tail[:-period]), 0)


def begin(
    lm: CachedLM,
    tokenizer: Tokenizer,
    rows: int,
    length: int,
    seed: int,
    wave: int,
    paragraphs: Sequence[str],
    tasks: float = 0.25,
    greedy: float = 0.7,
    warm: float = 0.8,
) -> list[Chat]:
    """The conversations of a wave, each at its beginning.

    Args:
        lm: the model.
        rows: B, how many conversations.
        length: L, tokens of each.
        paragraphs: texts for the prompts that need one; without any, no conversation begins with a task.
        tasks: share of conversations that begin with a prompt of `openings.TASKS`.
        greedy: share of conversations answered greedily; the others at temperature ``warm``.
    """
    template = Template.of(tokenizer)

    def encode(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"] if text else []

    def chat(row: int) -> Chat:
        rng = random.Random(f"{seed} {wave} {row}")
        temperature = 0.0 if rng.random() < greedy else warm
        if paragraphs and rng.random() < tasks:
            words, speaker = encode(task_prompt(rng.choice(TASKS), paragraphs, rng)) + template.to_answer, ANSWER
        else:
            words, speaker = encode(rng.choice(FIRST)), USER
        given = template.start + words
        return Chat(lm.with_own_cache(), template, encode, rng, length, temperature, given, speaker)

    return [chat(row) for row in range(rows)]


def converse(chats: Sequence[Chat], banned: Sequence[int], bar: tqdm) -> dict[str, torch.Tensor]:
    """Have the conversations, a token of each per forward, until all are full.

    Args:
        banned: ids that nobody may write.
        bar: counts tokens.

    Returns:
        tokens (B, L) int32, roles (B, L) uint8 and temperature (B,).
    """

    def forward(lms: Sequence[CachedLM], trees: Sequence[DraftTree], needs_hidden: bool) -> list[LMOutput]:
        outs = forward_together(lms, trees, needs_hidden)
        for out in outs:
            out.logits[:, banned] = -torch.inf
        return outs

    while talking := [chat for chat in chats if not chat.full]:
        together([chat.turn for chat in talking], forward)
        for chat in talking:
            chat.listen()
        bar.update(sum(len(chat.turn.context) for chat in chats) - bar.n)
    return {
        "tokens": torch.tensor([chat.tokens for chat in chats], dtype=torch.int32),
        "roles": torch.tensor([chat.roles for chat in chats], dtype=torch.uint8),
        "temperature": torch.tensor([chat.temperature for chat in chats]),
    }
