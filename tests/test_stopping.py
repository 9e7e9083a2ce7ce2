"""Where a generation ends, and what may be shown of it."""

import numpy as np
import pytest
import torch
from pieces import Pieces
from tokenizers import AddedToken

from specdec_core.core.stopping import Stop


def follow(stop, *batches, limit=100):
    """Feed batches of tokens, as verified drafts arrive; returns the watch and how many of each batch were kept."""
    watch, kept, seen = stop.watch(), [], 0
    for batch in batches:
        kept.append(watch.keep(batch, limit - seen))
        seen += kept[-1]
    return watch, kept


@pytest.mark.parametrize("position", range(4))
def test_stop_token_at_every_position_of_a_draft(position):
    batch = [1, 2, 3, 4]
    batch[position] = 9
    watch, kept = follow(Stop(tokens=9), batch)
    assert kept == [position + 1] and watch.reason == "stop_token"
    assert watch.finish() == (batch[: position + 1], None)


def test_stop_tokens_may_be_one_several_or_none():
    assert follow(Stop(tokens=[8, 9]), [1, 8])[0].reason == "stop_token"
    assert follow(Stop(tokens=0), [1, 0])[0].reason == "stop_token"
    for none in (None, [], ()):
        watch, kept = follow(Stop(tokens=none), [1, 2, 3], [4])
        assert watch.reason is None and kept == [3, 1]


def test_length_ends_inside_a_draft_and_a_stop_before_it_wins():
    watch, kept = follow(Stop(tokens=9), [1, 2], [3, 4, 9], limit=4)
    assert kept == [2, 2] and watch.reason == "length"
    watch, kept = follow(Stop(tokens=9), [1, 2], [3, 9, 5], limit=4)
    assert kept == [2, 2] and watch.reason == "stop_token"


def test_stop_string_that_straddles_two_tokens():
    """``a`` ``bE`` ``ND`` ``c``, stopping at END: the text is ``ab``; token ``bE`` reaches into END: not shown."""
    tokenizer = Pieces("a", "bE", "ND", "c")
    watch, kept = follow(Stop(strings="END", tokenizer=tokenizer), [0, 1], [2, 3])
    assert kept == [2, 1] and watch.reason == "stop_string"
    assert watch.finish() == ([0], "ab")


@pytest.mark.parametrize("position", range(4))
def test_stop_string_at_every_position_of_a_draft(position):
    tokenizer, batch = Pieces("x", "END"), [0, 0, 0, 0]
    batch[position] = 1
    watch, kept = follow(Stop(strings=["END"], tokenizer=tokenizer), batch)
    assert kept == [position + 1]
    assert watch.finish() == ([0] * position, "x" * position)


def test_stop_string_inside_one_token_keeps_the_text_before_it():
    watch, kept = follow(Stop(strings="\n", tokenizer=Pieces("a", "b\nc")), [0, 1])
    assert watch.finish() == ([0], "ab")


def test_the_earliest_of_several_stop_strings_wins():
    tokenizer = Pieces("a", " STOP END")
    watch, kept = follow(Stop(strings=["END", "STOP"], tokenizer=tokenizer), [0, 1])
    assert watch.finish() == ([0], "a ")


def test_beginning_of_a_stop_string_is_held_back_until_it_is_refuted():
    """E, EN could become END; X says that they do not, and everything is released at once."""
    watch, shown = Stop(strings="END", tokenizer=Pieces("a", "E", "N", "X")).watch(), []
    for token in [0, 1, 2, 3]:
        watch.keep([token], 100)
        shown.append(watch.released())
    assert shown == ["a", "a", "a", "aENX"]


def test_overlap_counts_the_longest_beginning():
    """After ``aab`` the string ``abab`` may have begun at the ``ab``; after ``aabab`` it is there."""
    watch = Stop(strings="abab", tokenizer=Pieces("a", "b")).watch()
    watch.keep([0, 0, 1], 100)
    assert watch.released() == "a"
    watch.keep([0, 1], 100)
    assert watch.reason == "stop_string" and watch.finish()[1] == watch.released() == "a"


def test_what_was_held_is_released_when_the_generation_ends_otherwise():
    watch, _ = follow(Stop(strings="END", tokenizer=Pieces("a", "EN")), [0, 1], limit=2)
    assert watch.reason == "length"
    assert watch.released() == "aEN" and watch.finish() == ([0, 1], "aEN")


def test_a_character_split_over_tokens_is_held_until_it_is_whole():
    """The four bytes of an emoji, one a token: never a replacement character on the way."""
    emoji = "🙂".encode()
    watch, shown = Stop(tokenizer=Pieces("a", *[emoji[i : i + 1] for i in range(4)], "b")).watch(), []
    for token in range(6):
        watch.keep([token], 100)
        shown.append(watch.released())
    assert shown == ["a", "a", "a", "a", "a🙂", "a🙂b"]


def test_stop_string_of_split_characters():
    """é is two tokens, and both halves belong to the stop string: neither is shown, before or after."""
    e = "é".encode()
    stop = Stop(strings="né", tokenizer=Pieces("a", "n", e[:1], e[1:]))
    watch, shown = stop.watch(), []
    for token in range(4):
        watch.keep([token], 100)
        shown.append(watch.released())
    assert watch.reason == "stop_string" and shown == ["a"] * 4
    assert watch.finish() == ([0], "a")


def test_stop_string_after_a_split_character_keeps_the_character():
    e = "é".encode()
    watch, _ = follow(Stop(strings="!", tokenizer=Pieces(e[:1], e[1:], "!")), [0, 1, 2])
    assert watch.finish() == ([0, 1], "é")


def test_bytes_that_never_become_a_character_are_shown_at_the_end():
    watch, _ = follow(Stop(tokenizer=Pieces("a", b"\xc3")), [0, 1], limit=2)
    assert watch.released() == "a\ufffd" == watch.finish()[1]


def test_released_text_only_grows_however_the_tokens_arrive():
    tokenizer = Pieces("a", "b", "E", "EN", "D", "N", *[bytes([b]) for b in "é🙂".encode()])
    tokens = [0, 2, 5, 0, 3, 3, 1, 6, 7, 2, 8, 9, 10, 11, 2, 5, 4, 0]
    for size in (1, 2, 3, 7, 18):
        watch, last = Stop(strings=["END", "🙂E"], tokenizer=tokenizer).watch(), ""
        for start in range(0, len(tokens), size):
            watch.keep(tokens[start : start + size], 100)
            assert watch.released().startswith(last)
            last = watch.released()
            if watch.reason:
                break
        assert watch.finish()[1] == last == "aENaENENbéE"


def test_strings_need_a_tokenizer_and_must_not_be_empty():
    with pytest.raises(ValueError, match="pass the tokenizer"):
        Stop(strings="END")
    for strings in ("", ["END", ""]):
        with pytest.raises(ValueError, match="empty stop string"):
            Stop(strings=strings, tokenizer=Pieces())


class Special(Pieces):
    """Its last piece is a special token, as a tokenizer of transformers has it: decoding skips it."""

    def __init__(self, *pieces):
        super().__init__(*pieces)
        self.added_tokens_decoder = {len(pieces) - 1: AddedToken(pieces[-1], special=True)}

    def decode(self, ids, **options):
        return super().decode([i for i in ids if i not in self.added_tokens_decoder], **options)


@pytest.mark.parametrize("strings", ["<|end|>", ["<|end|>", "never"]])
def test_a_stop_string_that_is_a_special_token_alone(strings):
    watch, kept = follow(Stop(strings=strings, tokenizer=Special("a", "b", "<|end|>")), [0, 1, 2, 0])
    assert kept == [3] and watch.reason == "stop_string" and watch.finish() == ([0, 1], "ab")


def test_a_stop_string_that_is_a_special_token_ends_the_text_before_it():
    stop = Stop(strings=["<|end|>", "!"], tokenizer=Special("a", "b", "!", "<|end|>"))
    watch, kept = follow(stop, [0, 1, 3, 0])
    assert kept == [3] and watch.reason == "stop_string"
    assert watch.finish() == ([0, 1], "ab") and watch.released() == "ab"
    watch, kept = follow(stop, [0, 2, 3])
    assert kept == [2] and watch.finish() == ([0], "a")


def test_a_stop_string_with_a_special_token_inside_is_refused():
    with pytest.raises(ValueError, match="holds the special token '<.end.>', which decoded text never shows; make"):
        Stop(strings="b<|end|>", tokenizer=Special("a", "b", "<|end|>"))


@pytest.mark.parametrize("tokens", [np.int64(3), torch.tensor(3), np.array([3]), [np.uint16(3)]])
def test_whole_numbers_of_every_kind_are_stop_tokens(tokens):
    assert Stop(tokens).tokens == {3}


@pytest.mark.parametrize("tokens", [3.0, [2.5], "3", ["3"]])
def test_what_is_no_whole_number_is_refused_as_a_stop_token(tokens):
    with pytest.raises(ValueError, match=r"^tokens.*: expected "):
        Stop(tokens)


class Counting(Pieces):
    decoded = 0

    def decode(self, ids, **options):
        self.decoded += len(ids)
        return super().decode(ids, **options)


@pytest.mark.parametrize("pieces", [("a", "EN"), ("a", b"\xc3"), (b"\xff", b"\x80")])
def test_the_work_per_token_does_not_grow_with_the_answer(pieces):
    """Counted in tokens decoded; bytes that never become a character are no exception."""
    tokenizer = Counting(*pieces)
    watch, counts = Stop(strings=["END", "STOP"], tokenizer=tokenizer).watch(), []
    for number in range(4000):
        watch.keep([number % 3 == 0], 10_000)
        watch.released()
        if number % 1000 == 999:
            counts.append(tokenizer.decoded)
    assert watch.reason is None and max(np.diff(counts)) <= counts[0] * 1.01 <= 80 * 1000
    assert watch.released().rstrip("\ufffd") in tokenizer.decode(watch._tokens, skip_special_tokens=True)


@pytest.mark.parametrize("seed", range(5))
def test_a_stop_string_is_found_where_a_search_of_the_whole_text_finds_it(seed):
    random = np.random.default_rng(seed)
    tokenizer = Pieces("a", "ab", "b", "ba", *[bytes([b]) for b in "é🙂".encode()])
    tokens = random.integers(0, 10, 60).tolist()
    for string in ("abba", "baa", "🙂a", "aé"):
        ends = [n for n in range(1, len(tokens) + 1) if string in tokenizer.decode(tokens[:n], True)]
        watch, _ = follow(Stop(strings=string, tokenizer=tokenizer), tokens)
        assert (watch.reason == "stop_string") == bool(ends)
        if ends:
            text = tokenizer.decode(tokens, True).partition(string)[0]
            assert len(watch._tokens) == ends[0] and watch.finish()[1] == text
