"""A tokenizer of given pieces of bytes, so that a test says exactly where tokens begin and end."""


class Pieces:
    """Token i stands for ``pieces[i]``, a text or bytes that need not be whole characters."""

    def __init__(self, *pieces):
        self.pieces = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]

    def decode(self, ids, skip_special_tokens):
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", "replace")
