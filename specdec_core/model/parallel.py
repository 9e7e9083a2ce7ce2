"""Lookahead parallelism (arXiv:2402.02057, section 3.4): the branches of one tree spread over several ranks.

Every rank of a `torch.distributed` group holds the whole model and runs the same loop on the same prompt
with the same seed. `ShardedLM` hands each rank a share of the tree's leaves (columns of the lookahead
window, candidates), together with their ancestors: those are computed more than once, as the paper's Figure
3 shows for the input token and level 0, and in return a forward needs no communication. One all-gather
follows it; then every rank verifies the same rows with the same random numbers and comes to the same tokens.
Nothing here is particular to lookahead: any `DraftTree` with several leaves can be shared out.

What one exchange costs, for N nodes, V tokens and b bytes a number: about V * b bytes a row with
``exchange="logits"`` (120 rows of 49,152 float32 are 23.6 MB), 8 bytes a row with ``exchange="argmax"`` (960
bytes), which is the paper's "synchronize the generated tokens" and enough for greedy decoding.

Keys and values are never sent. A rank whose share does not hold the accepted path commits the part that it
has and puts the missing tokens, at most the depth of the tree, as a chain in front of its next share, which
computes them in the same forward: at most N - 1 more rows for lookahead. The paper's code does likewise.
Sending them would take 2 * layers * kv_heads * head_dim * b bytes per token and a second exchange per step.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist

from ..base.errors import DraftError, UnsupportedModel
from ..core.contract import Choices, LanguageModel, LMOutput, Memory
from ..core.tree import DraftTree

# Relative to the logits: what rounding explains where ranks run other kernels.
_ROUNDING = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 0.05, torch.bfloat16: 0.1}
_NO_HIDDEN = "hidden states are not exchanged between ranks; run this drafter on one rank"


def shares(tree: DraftTree, ranks: int) -> list[np.ndarray]:
    """The rows of ``tree`` that each rank computes: a run of consecutive leaves and all their ancestors.

    Leaves are dealt out so that the rows which no earlier leaf needs are about as many on every rank.

    Args:
        tree: with N nodes.
        ranks: how many shares, >= 1.

    Returns:
        ``ranks`` increasing vectors of row ids; each contains the root and the parent of every row in it, and
        together they contain every row. A rank may get the root alone.

    >>> tree = DraftTree.from_paths(9, [[1, 2], [3, 4]])
    >>> [rows.tolist() for rows in shares(tree, 2)]
    [[0, 1, 2], [0, 3, 4]]
    """
    rows = len(tree.tokens)
    needs = tree.ancestors[np.setdiff1d(np.arange(rows), tree.parents)]  # (leaves, N+1)
    weight = (needs & (np.cumsum(needs, axis=0) == 1)).sum(1)  # (leaves,) rows that no earlier leaf needs
    rank = ((np.cumsum(weight) - weight / 2) * ranks / rows).astype(int)  # (leaves,)
    root = np.arange(rows) == 0
    return [np.flatnonzero(root | needs[rank == r].any(0)) for r in range(ranks)]


class ShardedLM:
    """A language model on every rank of a group that scores each tree together with the others.

    It has the interface of the ``lm`` it wraps, for use in the same loop. Call it on all ranks alike.

    Args:
        lm: this rank's copy of the model.
        group: the process group; the default one if None.
        exchange: ``"logits"``, any sampling; or ``"argmax"``, greedy decoding without penalties only, and a
            thousandth of the bytes.

    Raises:
        ValueError: for another ``exchange``.
        UnsupportedModel: in the first `forward` of a generation, on all ranks, if they do not hold the same model.
        DraftError: in `forward`, on all ranks, if they do not run the same generation; there and in `prefill` if
            hidden states are asked for, which are not exchanged.
    """

    def __init__(self, lm: LanguageModel, group: dist.ProcessGroup | None = None, exchange: str = "logits"):
        if exchange not in ("logits", "argmax"):
            raise ValueError(f"exchange must be 'logits' or 'argmax'; got {exchange!r}")
        self.lm, self.group, self.exchange = lm, group, exchange
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.vocab_size, self.max_length, self.bos_id = lm.vocab_size, lm.max_length, lm.bos_id
        self._missing: list[int] = []  # committed tokens whose keys and values this rank lacks
        self._context = 0  # checksum of the committed tokens
        self._agreed = False  # whether the ranks have compared their first rows

    @property
    def length(self) -> int:
        return self.lm.length + len(self._missing)

    @property
    def memory(self) -> Memory:
        return self.lm.memory

    def with_own_cache(self) -> ShardedLM:
        return ShardedLM(self.lm.with_own_cache(), self.group, self.exchange)

    def prefill(self, ids: Sequence[int], reserve: int = 0, needs_hidden: bool = False) -> None:
        if needs_hidden:
            raise DraftError(_NO_HIDDEN)
        self._missing, self._context, self._agreed = [], _checksum(0, np.asarray(ids, np.int64)), False
        self.lm.prefill(ids, reserve)

    def forward(self, tree: DraftTree, needs_hidden: bool = False) -> LMOutput:
        """Score this rank's share, then exchange: the rows of the whole tree, the same on all ranks."""
        if needs_hidden:
            raise DraftError(_NO_HIDDEN)
        split = shares(tree, self.ranks)
        self._tree, self._rows = tree, split[self.rank]
        late = len(self._missing)
        local = np.searchsorted(self._rows, tree.parents[self._rows[1:]])  # parents, as rows of the share
        share = DraftTree(
            np.concatenate([np.array(self._missing, np.int64), tree.tokens[self._rows]]),
            np.concatenate([np.arange(-1, late), local + late]),
        )
        logits = self.lm.forward(share).logits[late:]
        assert isinstance(logits, torch.Tensor), "the ranks of a group do not share out what is shared out already"
        if not self._agreed:
            self._agree(logits[0])
        # A row that several ranks computed is taken from the first, so that all go on with the same bits.
        owner = np.full(len(tree.tokens), self.ranks)
        for rank in reversed(range(self.ranks)):
            owner[split[rank]] = rank
        own = logits[torch.from_numpy(np.flatnonzero(owner[self._rows] == self.rank)).to(logits.device)]
        if self.exchange == "logits":
            return LMOutput(self._gather(own, owner))
        return LMOutput(Choices(self._gather(own.argmax(-1), owner)))

    def commit(self, path: Sequence[int]) -> None:
        # Shares are closed under parents, so what a share has of a path is the front of it.
        here = [int(row) for row in np.searchsorted(self._rows, np.intersect1d(path, self._rows))]
        late, tokens = len(self._missing), self._tree.tokens[list(path)]
        self.lm.commit([*range(late), *(late + row for row in here)])
        self._missing = tokens[len(here) :].tolist()
        self._context = _checksum(self._context, tokens)

    def _agree(self, row: torch.Tensor) -> None:
        """Compare what every rank computed for the root (V,): its length, and three sums of it under random signs."""
        values = torch.where(row.isfinite(), row, 0.0).cpu().double()
        signs = torch.randint(0, 2, (3, len(row)), generator=torch.Generator().manual_seed(0)).double() * 2 - 1
        about = [len(row), row.element_size(), float(values.norm()), *(signs @ values).tolist()]
        mine = torch.tensor(about, dtype=torch.float64, device=self._meeting(row))
        everyones = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(everyones, mine, group=self.group)
        first, apart = everyones[0], torch.stack(everyones) - everyones[0]  # (6,), (ranks, 6)
        if (apart[:, :2] != 0).any() or not (apart.abs() <= _ROUNDING[row.dtype] * first[2]).all():
            raise UnsupportedModel(
                f"the {self.ranks} ranks compute different logits after the same text; "
                f"load the same model, in the same dtype, on all of them"
            )
        self._agreed = True

    def _meeting(self, own: torch.Tensor) -> torch.device:
        """Where the group exchanges tensors."""
        return own.device if dist.get_backend(self.group) == "nccl" else torch.device("cpu")

    def _gather(self, own: torch.Tensor, owner: np.ndarray) -> torch.Tensor:
        """Rows of all ranks put in the order of the tree; ``owner[i]`` is the rank that sends row i."""
        counts = np.bincount(owner, minlength=self.ranks)
        # Bytes, because not every backend knows every dtype; a checksum of the context and tree rides along.
        mark = torch.tensor([_checksum(self._context, self._tree.tokens, self._tree.parents)])
        padded = own.new_zeros(int(counts.max()), *own.shape[1:])
        padded[: len(own)] = own
        device = self._meeting(own)
        sent = torch.cat([mark.view(torch.uint8).to(device), padded.view(-1).view(torch.uint8).to(device)])
        received = [torch.empty_like(sent) for _ in range(self.ranks)]
        dist.all_gather(received, sent, group=self.group)
        if any(not torch.equal(buffer[:8], sent[:8]) for buffer in received):
            raise DraftError(
                "the ranks do not run the same generation; give all of them the same prompt, seed, drafter and options"
            )
        whole = own.new_empty(len(owner), *own.shape[1:])
        for rank, buffer in enumerate(received):
            rows = buffer[8:].to(own.device).view(own.dtype).view(padded.shape)
            whole[torch.from_numpy(np.flatnonzero(owner == rank)).to(own.device)] = rows[: counts[rank]]
        return whole


def _checksum(start: int, *arrays: np.ndarray) -> int:
    for array in arrays:
        start = zlib.crc32(array.tobytes(), start)
    return start
