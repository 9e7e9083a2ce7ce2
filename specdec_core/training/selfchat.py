"""The target's own conversations: it writes the user's turns from the bare template, then answers them.

A drafter has to guess what the target says, so the target's own text is what it learns from (the papers of Medusa,
arXiv:2401.10774, section 2.3.2, and EAGLE do the same or use human conversations). The user's turn needs no data set
either: after the template's header for it, a chat model continues with a question (Magpie, arXiv:2406.08464).

A wave of conversations is generated at a time and stored whole, tokens with the target's hidden states, so an
interrupted run loses the wave it was in and continues with the same tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tqdm import tqdm

from .openings import FIRST, LATER, TASKS, task_prompt
from .wave import Wave

# What a token is: given by the template or a prompt, written as the user, written as the answer, part of a loop.
GIVEN, USER, ANSWER, LOOP = range(4)
_LONGEST_PERIOD, _LOOP_TOKENS = 24, 30


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
    def of(cls, tokenizer: Any) -> Template:
        """The pieces of a tokenizer's chat template.

        Raises:
            ValueError: for a tokenizer without one, or whose turns do not end with a token of their own.
        """
        if not getattr(tokenizer, "chat_template", None):
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


@dataclass
class Chat:
    """One conversation in the making."""

    template: Template
    rng: random.Random
    encode: Any  # text to ids, without special tokens
    temperature: float  # of the answers
    queue: list[int]  # tokens to be read before the model writes again
    opening: list[int] = field(default_factory=list)
    speaker: int = USER
    tokens: list[int] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)
    turn: int = 0  # where the present turn began

    def next(self, drawn: int) -> int:
        """The token to read next, given the one that was drawn after the last."""
        if self.queue:
            return self._take(self.queue.pop(0), GIVEN)
        self._take(drawn, self.speaker)
        written = len(self.tokens) - self.turn
        if drawn == self.template.end:
            self._turn(ended=True)
        elif period := _loop(self.tokens[self.turn :]):
            # All but the first round of the loop; the turn is ended for the model.
            for at in range(len(self.tokens) - _LOOP_TOKENS + period, len(self.tokens)):
                self.roles[at] = LOOP
            self._turn()
        elif self.speaker == USER and written >= 64:
            self._turn()
        return drawn

    def _take(self, token: int, role: int) -> int:
        self.tokens.append(token)
        self.roles.append(role)
        if role == GIVEN and not self.queue:
            self.turn = len(self.tokens)
        return token

    def _turn(self, ended: bool = False) -> None:
        if self.speaker == USER:
            self.speaker, self.queue = ANSWER, self.template.to_answer[ended:]
        else:
            self.speaker = USER
            self.queue = self.template.to_user[ended:] + self.encode(self.rng.choice(LATER))


def _loop(tokens: Sequence[int]) -> int:
    """The period with which the last `_LOOP_TOKENS` tokens repeat (at least once over), or 0."""
    if len(tokens) < _LOOP_TOKENS:
        return 0
    tail = tokens[-_LOOP_TOKENS:]
    for period in range(1, min(_LONGEST_PERIOD, _LOOP_TOKENS // 2) + 1):
        if tail[period:] == tail[:-period]:
            return period
    return 0


def begin(template: Template, tokenizer: Any, rows: int, seed: int, wave: int, paragraphs: Sequence[str],
          tasks: float = 0.25, greedy: float = 0.7, warm: float = 0.8) -> list[Chat]:  # fmt: skip
    """The conversations of a wave, each at its beginning.

    Args:
        rows: B, how many.
        paragraphs: texts for the prompts that need one; without any, no conversation begins with a task.
        tasks: share of conversations that begin with a prompt of `openings.TASKS`.
        greedy: share of conversations answered greedily; the others at temperature ``warm``.
    """

    def encode(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"] if text else []

    chats = []
    for row in range(rows):
        rng = random.Random(f"{seed} {wave} {row}")
        temperature = 0.0 if rng.random() < greedy else warm
        if paragraphs and rng.random() < tasks:
            prompt = encode(task_prompt(rng.choice(TASKS), paragraphs, rng))
            chat = Chat(template, rng, encode, temperature, template.start + prompt + template.to_answer)
            chat.speaker = ANSWER
        else:
            chat = Chat(template, rng, encode, temperature, template.start + encode(rng.choice(FIRST)))
        chats.append(chat)
    return chats


def run(wave: Wave, chats: list[Chat], generator: torch.Generator, banned: Sequence[int], bar: tqdm) -> dict:
    """Have the conversations until the wave is full.

    Returns:
        tokens (B, L) int32, roles (B, L) uint8, temperature (B,) and hidden (B, L, D), the target's states after
        each token.
    """
    hidden = torch.empty(wave.rows, wave.length, wave.dim, dtype=wave.dtype)
    ids = [chat.next(-1) for chat in chats]
    for position in range(wave.length):
        writes = any(not chat.queue for chat in chats) and position + 1 < wave.length
        logits, states = wave.step(torch.tensor(ids, device=wave.device), position, logits=writes)
        hidden[:, position] = states.cpu()
        bar.update(wave.rows)
        if position + 1 == wave.length:
            break
        drawn = [-1] * wave.rows
        if writes:
            logits[:, banned] = -torch.inf
            warmth = [1.0 if chat.speaker == USER else chat.temperature for chat in chats]
            drawn = draw(logits, torch.tensor(warmth, device=wave.device), generator).tolist()
        ids = [chat.next(token) for chat, token in zip(chats, drawn, strict=True)]
    return {
        "tokens": torch.tensor([chat.tokens for chat in chats], dtype=torch.int32),
        "roles": torch.tensor([chat.roles for chat in chats], dtype=torch.uint8),
        "temperature": torch.tensor([chat.temperature for chat in chats]),
        "hidden": hidden,
    }


def draw(logits: torch.Tensor, temperature: torch.Tensor, generator: torch.Generator, top_k: int = 50,
         top_p: float = 0.95) -> torch.Tensor:  # fmt: skip
    """(B,) tokens drawn from logits (B, V): among the ``top_k`` largest, of which the first with mass ``top_p``.

    Args:
        temperature: (B,); 0 takes the largest.
    """
    best, tokens = logits.topk(top_k)
    laws = (best.float() / temperature.clamp(min=1e-4)[:, None]).softmax(-1)
    laws = laws.masked_fill(laws.cumsum(-1) - laws >= top_p, 0)
    # The Gumbel trick in its exponential form: the largest p / e, with e exponential, is distributed as p.
    noise = torch.empty(laws.shape).exponential_(generator=generator).to(laws.device)
    chosen = torch.where(temperature > 0, (laws / noise).argmax(-1), 0)
    return tokens.gather(1, chosen[:, None])[:, 0]
