"""Each classic mistake of speculative sampling, planted in a copy of the rule or of the draw, is caught.

The check is `laws.law_error`, the very one that `test_laws` applies to the package's own rule.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from laws import EXACT, PLAIN, WRONG, Draw, by_text, law_error

from specdec_core.core.rules import residual, verify, without
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM

# Near enough that the draft is often accepted, far enough that every mistake below costs at least 0.03.
TARGET, DRAFT = TableLM.random(4, seed=3, scale=1.0), TableLM.random(4, seed=103, scale=1.0)
CHAIN, SIBLINGS = (1, 1), (2, 1)


@dataclass(frozen=True)
class Block:
    tokens: tuple


def fresh(rng, node, memory):
    return rng.uniform()


def rule(p, tree, rng, *, uniform=fresh, residual=residual, tested=None, pick=None, last=None):
    """A copy of the rule for drawn trees. A mistake replaces one of its ingredients:

    uniform: the number that child ``node`` is tested with. residual: the law after a rejection.
    tested: the law that later siblings are tested against, if not that residual.
    pick: the draw of the last token. last: the law it is drawn from.
    """
    node, tokens, memory = 0, [], {}
    while True:
        law = p_here = np.asarray(p[node])
        q = tree.q[node]
        for child in tree.children(node):
            x = int(tree.tokens[child])
            p_x = (tested(p_here, law) if tested else law)[x]
            if uniform(rng, child, memory) < p_x / q[x]:
                break
            law = residual(law, q)
            if tree.draw == "without_replacement" and child != tree.children(node)[-1]:
                q = without(q, x)
        else:
            law = last(law, tree, node) if last else law
            return Block((*tokens, pick(rng, law) if pick else rng.pick(law)))
        tokens.append(x)
        node = child


def planted(**mistake):
    return lambda p, tree, rng: rule(p, tree, rng, **mistake)


@pytest.mark.parametrize("widths", [CHAIN, SIBLINGS], ids=["chain", "siblings"])
@pytest.mark.parametrize("draw", ["iid", "without_replacement"])
def test_the_copy_without_a_mistake_is_exact(draw, widths):
    assert law_error(rule, Draw(DRAFT, widths, draw), TARGET) <= EXACT


def unnormalized(p, q):
    excess = np.maximum(p - q, 0.0)
    return excess if excess.any() else p


def inverse_cdf(rng, law):
    """A draw that trusts its law to sum to one, as one that divides by the sum does not need to."""
    u = rng.uniform()
    return next((x for x, edge in enumerate(np.cumsum(law)) if u < edge), len(law) - 1)


def one_uniform_a_block(rng, node, memory):
    return memory.setdefault("u", rng.uniform())


MISTAKES = {
    "correction drawn from p, not the residual": (CHAIN, dict(residual=lambda p, q: p)),
    "residual not renormalized, correction": (CHAIN, dict(residual=unnormalized, pick=inverse_cdf)),
    "residual not renormalized, next sibling": (SIBLINGS, dict(residual=unnormalized)),
    "second sibling tested against p": (SIBLINGS, dict(tested=lambda p_here, law: p_here)),
    "bonus drawn from q": (CHAIN, dict(last=lambda law, tree, node: law if tree.children(node) else tree.q[node])),
    "one uniform for all tests of a block": (CHAIN, dict(uniform=one_uniform_a_block)),
}


@pytest.mark.parametrize("draw", ["iid", "without_replacement"])
@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_in_the_rule_is_caught(name, draw):
    widths, mistake = MISTAKES[name]
    assert law_error(planted(**mistake), Draw(DRAFT, widths, draw), TARGET) > WRONG


@pytest.mark.parametrize(
    "drawn",
    [Sampling(temperature=0.7), Sampling(temperature=1.0, top_k=2), Sampling(temperature=1.0, top_p=0.6)],
    ids=["temperature", "top-k", "top-p"],
)
@pytest.mark.parametrize("draw", ["iid", "without_replacement"])
def test_q_from_unprocessed_logits_is_caught(draw, drawn):
    """The draft is drawn from the processed law, the tree carries softmax(logits)."""
    wrong = Draw(DRAFT, CHAIN, draw, drawn, reported=PLAIN)
    assert law_error(verify, wrong, TARGET, drawn) > WRONG
    assert law_error(verify, Draw(DRAFT, CHAIN, draw, drawn), TARGET, drawn) <= EXACT


class OwnUniforms(Draw):
    """Draws by inverse CDF and leaves each node's uniform behind."""

    def siblings(self, law, width, rng):
        uniforms = [rng.uniform() for _ in range(width)]
        self.uniforms += uniforms
        return [next((x for x, edge in enumerate(np.cumsum(law)[:-1]) if u < edge), len(law) - 1) for u in uniforms]

    def __call__(self, *args, **kwargs):
        self.uniforms = [None]  # row 0 is the root
        return super().__call__(*args, **kwargs)


def test_token_tested_with_the_uniform_that_drew_it_is_caught():
    draw = OwnUniforms(DRAFT, CHAIN)
    assert law_error(planted(uniform=lambda rng, node, memory: draw.uniforms[node]), draw, TARGET) > WRONG
    assert law_error(rule, draw, TARGET) <= EXACT


def relabeled(draw, label):
    """The same trees under another name for how they were drawn."""

    def mislabeled(*args):
        return replace(draw(*args), draw=label)

    mislabeled.depth = draw.depth
    return mislabeled


@pytest.mark.parametrize(
    "drawn, label",
    [("without_replacement", "iid"), ("point", "iid"), ("point", "without_replacement")],
)
def test_rule_that_does_not_match_the_draw_is_caught(drawn, label):
    """Siblings without replacement under the i.i.d. rule; the draft's top k, not drawn at all, under both."""
    draw = Draw(DRAFT, SIBLINGS, drawn)
    assert law_error(verify, relabeled(draw, label), TARGET) > WRONG
    assert law_error(verify, draw, TARGET) <= EXACT


def test_repeated_siblings_under_the_rule_without_replacement_are_refused():
    """The second of two equal siblings has q = 0 there: an error, not another law."""
    draw = relabeled(Draw(DRAFT, SIBLINGS, "iid"), "without_replacement")
    with pytest.raises(ValueError, match="has no mass under q"):
        law_error(verify, draw, TARGET)


def test_the_point_rule_is_exact_for_trees_however_they_were_drawn():
    """Sample-then-match never reads q: a tree drawn at random is as good to it as a fixed one."""
    for drawn in ("iid", "without_replacement"):
        assert law_error(verify, relabeled(Draw(DRAFT, SIBLINGS, drawn), "point"), TARGET) <= EXACT


class AfterText(Sampling):
    """Processes row i for ``text(tree, i, context)``, in a copy of `Sampling.laws`; None is not at all."""

    def laws(self, logits, tree, context, prompt_length):
        texts = [self.text(tree, i, list(context)) for i in range(len(tree.tokens))]
        rows = zip(logits.numpy(), texts, strict=True)
        return [self.law(row if text is None else self.process(row, text)) for row, text in rows]


def path(tree, i, context):
    return context + tree.tokens[tree.path_to(i)[1:]].tolist()


TEXTS = {
    "the context without the draft": lambda tree, i, context: context,
    "the path without the row's own token": lambda tree, i, context: path(tree, i, context)[: -1 if i else None],
    "the path without its root": lambda tree, i, context: context[:-1] + path(tree, i, context)[len(context) :],
    "the path alone": lambda tree, i, context: path(tree, i, context)[len(context) - 1 :],
    "processors at the root only": lambda tree, i, context: None if i else context,
    "no processors at leaves": lambda tree, i, context: path(tree, i, context) if tree.children(i) else None,
    "all rows before this one": lambda tree, i, context: context + tree.tokens[1 : i + 1].tolist(),
}


@pytest.mark.parametrize("draw", ["point", "iid", "without_replacement"])
@pytest.mark.parametrize("name", [None, *TEXTS])
def test_a_processor_given_another_text_is_caught(name, draw):
    copy = AfterText(temperature=1.0, processors=[by_text])
    vars(copy)["text"] = TEXTS.get(name, path)
    error = law_error(verify, Draw(DRAFT, SIBLINGS, draw), TARGET, copy)
    assert error > WRONG if name else error <= EXACT


@pytest.mark.parametrize("draw", ["point", "iid", "without_replacement"])
@pytest.mark.parametrize("chain", [False, True], ids=["tree", "chain"])
def test_processors_after_the_temperature_are_caught(chain, draw):
    """The order is part of the law: a processor sees logits, not what is left of them."""

    class Late(Sampling):
        def laws(self, logits, tree, context, prompt_length):
            rows = logits.numpy() / self.temperature
            texts = [path(tree, i, list(context)) for i in range(len(rows))]
            return [PLAIN.law(self.process(row, text)) for row, text in zip(rows, texts, strict=True)]

    late = Late(temperature=0.6, processors=[by_text])
    assert law_error(verify, Draw(DRAFT, CHAIN if chain else SIBLINGS, draw), TARGET, late) > WRONG
