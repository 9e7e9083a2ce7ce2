"""From messages to token ids: the tokenizer's own chat template, or plain text where it has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..base.arguments import text


class Tokenizer(Protocol):
    """What this package needs of a tokenizer of transformers."""

    chat_template: Any
    name_or_path: str
    all_special_ids: list[int]
    eos_token_id: int | None

    def __call__(self, text: str, **options: Any) -> Any: ...

    def decode(self, token_ids: Any, **options: Any) -> Any: ...

    def get_vocab(self) -> dict[str, int]: ...

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...


def encode(
    turns: str | Sequence[str], tokenizer: Tokenizer, system: str | None = None, answers: Sequence[str] = ()
) -> list[int]:
    """The token ids of a conversation up to the place where the model's next answer begins.

    The tokenizer's chat template is applied. Without a system message, some templates put one of their own
    first (SmolLM2's does); it stays, because the model was trained with it. A tokenizer without a template
    (GPT-2's) gets plain text, `User: ...` and `Assistant: ...` separated by blank lines, ending in
    `Assistant:`, after the system message if there is one.

    Args:
        turns: the user's messages; one string is one message.
        tokenizer: of transformers.
        system: the system message.
        answers: the model's earlier answers, one fewer than `turns`.

    Raises:
        ValueError: the number of turns is not one more than that of answers, or one of them is no text.

    Example:
        >>> class Letters:  # one id a character, no chat template
        ...     chat_template = None
        ...     def __call__(self, text):
        ...         return {"input_ids": [ord(character) for character in text]}
        >>> "".join(map(chr, encode(["Hi", "Why?"], Letters(), answers=["Hello"])))
        'User: Hi\\n\\nAssistant: Hello\\n\\nUser: Why?\\n\\nAssistant:'
    """
    turns = [turns] if isinstance(turns, str) else list(turns)
    if len(turns) != len(answers) + 1:
        raise ValueError(
            f"{len(turns)} user turns and {len(answers)} answers; expected one turn more than answers. "
            "`conversation` answers the turns of a question one after the other."
        )
    messages = [{"role": "system", "content": system}] if system is not None else []
    for turn, answer in zip(turns[:-1], answers, strict=True):
        messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": turns[-1]})
    for place, message in enumerate(messages):
        text(f"message {place} ({message['role']})", message["content"])
    if not tokenizer.chat_template:
        return list(tokenizer(_plain(messages))["input_ids"])
    # transformers 5 returns a BatchEncoding unless told otherwise; 4 returns the list.
    ids = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
    return list(ids)


def _plain(messages: list[dict[str, str]]) -> str:
    prefix = {"system": "", "user": "User: ", "assistant": "Assistant: "}
    return "\n\n".join([prefix[m["role"]] + m["content"] for m in messages] + ["Assistant:"])
