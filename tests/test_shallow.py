"""The distilled draft model: cut out of its target, trained, stored, put together again, and handed to transformers."""

from types import SimpleNamespace

import numpy as np
import pytest
import tiny_model
import torch
from safetensors.torch import save_file
from tiny_models import tiny

from specdec_core import compare
from specdec_core.base.errors import ModelError
from specdec_core.core.engine import generate
from specdec_core.drafters import DraftModel, distilled, weights
from specdec_core.drafters.feature_net import Frozen
from specdec_core.drafters.methods import Context, MethodError, build
from specdec_core.drafters.shallow_net import ShallowDraft
from specdec_core.model.lm import CachedLM
from specdec_core.race import peers
from specdec_core.training.corpus import Batch, Corpus
from specdec_core.training.loop import Schedule, train
from specdec_core.training.selfchat import ANSWER, GIVEN
from specdec_core.training.shallow import ShallowObjective

PROMPT, LENGTH = 4, 24


def frozen_of(target, ids=None):
    ids = torch.arange(target.config.vocab_size) if ids is None else torch.tensor(ids)
    embedding, head = target.get_input_embeddings().weight, target.get_output_embeddings().weight
    return Frozen(embedding.detach(), head.detach()[ids], ids, target.config)


@torch.no_grad()
def spoken(target, rows):
    """tokens (rows, LENGTH), each answer the target's greedy one after a prompt of its own, and hidden states."""
    tokens = torch.randint(3, 60, (rows, PROMPT), generator=torch.Generator().manual_seed(5))
    while tokens.shape[1] < LENGTH:
        tokens = torch.cat([tokens, target(tokens).logits[:, -1:].argmax(-1)], 1)
    return tokens, target.model(tokens).last_hidden_state


def batch_of(target, rows=3):
    tokens, hidden = spoken(target, rows)
    roles = torch.full(tokens.shape, ANSWER, dtype=torch.uint8)
    roles[:, :PROMPT] = GIVEN
    return Batch(tokens, roles, hidden, torch.ones(rows, dtype=torch.bool))


# Training


def test_with_all_layers_it_is_the_target_and_with_few_the_target_without_the_others():
    target, tokens = tiny("llama"), torch.arange(3, 23).view(2, 10)
    with torch.no_grad():
        assert torch.equal(ShallowDraft(frozen_of(target), target, (0, 1, 2))(tokens), target(tokens).logits)
        ids = [7, 60, 3]
        cut = ShallowDraft(frozen_of(target, ids), target, (0, -1))(tokens)
        x = target.model.embed_tokens(tokens)
        turned = target.model.rotary_emb(x, torch.arange(10)[None])
        mask = torch.full((10, 10), -torch.inf, dtype=x.dtype).triu(1)[None, None]
        for index in (0, 2):
            out = target.model.layers[index](x, attention_mask=mask, position_embeddings=turned)
            x = out[0] if isinstance(out, tuple) else out
        expected = target.lm_head(target.model.norm(x))[..., ids]
    assert cut.shape == (2, 10, 3) and (cut - expected).abs().max() < 1e-12


def test_training_moves_the_layers_and_leaves_the_target_as_it_is():
    target = tiny("llama")
    before = {name: weight.clone() for name, weight in target.state_dict().items()}
    objective = ShallowObjective(ShallowDraft(frozen_of(target, range(40)), target))
    names = set(objective.module.state_dict())
    assert names == {name for name in before if name.startswith(("model.layers.0.", "model.layers.1.", "model.norm."))}
    optimizer = torch.optim.SGD(objective.module.parameters(), lr=0.1)
    sum(objective.losses(batch_of(target)).values()).backward()
    assert all(weight.grad.abs().sum() > 0 for weight in objective.module.parameters())
    optimizer.step()
    assert all(torch.equal(weight, before[name]) for name, weight in target.state_dict().items())


def test_the_loss_is_a_cross_entropy_least_where_the_draft_is_the_target():
    target = tiny("llama")
    batch = batch_of(target)
    same = ShallowObjective(ShallowDraft(frozen_of(target), target, (0, 1, 2))).losses(batch)["law"]
    laws = target.lm_head(batch.hidden).softmax(-1)[:, PROMPT - 1 : -1]
    entropy = -(laws * laws.log()).sum(-1).mean()
    other = ShallowObjective(ShallowDraft(frozen_of(target), target, (0, 2))).losses(batch)["law"]
    assert same.item() == pytest.approx(entropy.item(), rel=1e-4)
    assert other > same


def test_hits_are_those_that_greedy_decoding_counts():
    """The target's own layers are right at every depth; others as often as a draft model in the loop."""
    target = tiny("llama")
    batch = batch_of(target)
    whole = ShallowObjective(ShallowDraft(frozen_of(target), target, (0, 1, 2))).hits(batch, 4)
    assert torch.equal(whole[0], whole[1]) and whole[0].tolist() == [3.0 * n for n in (20, 19, 18, 17)]
    module = ShallowDraft(frozen_of(target), target, (0, 2))
    counts = ShallowObjective(module).hits(batch, 3)
    expected = torch.zeros(2, 3)
    for row in batch.tokens.tolist():
        for place in range(PROMPT - 1, LENGTH - 1):  # the last token known before the first draft
            text = row[: place + 1]
            for depth in range(min(3, LENGTH - 1 - place)):
                with torch.no_grad():
                    text.append(int(module(torch.tensor([text]))[0, -1].argmax()))
                expected[0, depth] += 1
                if text != row[: len(text)]:
                    break
                expected[1, depth] += 1
    assert torch.equal(counts, expected) and 0 < counts[1, 0] < counts[0, 0]


def test_a_seed_gives_the_same_run_twice_and_one_that_was_interrupted_ends_as_if_it_had_not_been(tmp_path):
    target = tiny_model.model()
    tokens, hidden = spoken(target, 32)
    roles = torch.full(tokens.shape, ANSWER, dtype=torch.uint8)
    tensors = {"tokens": tokens.int(), "roles": roles, "temperature": torch.zeros(32), "hidden": hidden}
    save_file(tensors, tmp_path / "wave-000.safetensors")
    corpus, schedule = Corpus(tmp_path), Schedule(updates=8, rows=4, every=2, warm=2, rate=3e-3)

    def run(folder, *stops):
        for stop in (*stops, None):
            objective = ShallowObjective(ShallowDraft(frozen_of(target, range(200)), target, (0,)))
            log = train(objective, corpus, schedule, tmp_path / folder, stop_after=stop, quiet=True)
        kept = [{key: value for key, value in line.items() if key != "seconds"} for line in log]
        return kept, objective.module.state_dict()

    (log, end), (again, _), (resumed, resumed_end) = run("one"), run("two"), run("three", 4)
    assert log == again == resumed and len(log) == 4
    assert all(torch.equal(weight, resumed_end[name]) for name, weight in end.items())
    assert log[-1]["law"] < log[0]["law"]


def test_what_cannot_be_cut_is_refused():
    target = tiny("llama")
    with pytest.raises(ValueError, match="LlamaForCausalLM; got GPT2LMHeadModel"):
        ShallowDraft(frozen_of(target), tiny("gpt2"))
    for layers in ((), (0, 3), (-4,)):
        with pytest.raises(ValueError, match="indices from -3 to 2, at least one"):
            ShallowDraft(frozen_of(target), target, layers)


# Put together


def stored(path, target, layers, ids):
    """A weight file of the draft model as it is before any training."""
    module = ShallowDraft(frozen_of(target, ids), target, layers)
    tensors = {**module.state_dict(), "ids": module.frozen.ids}
    weights.write(path, tensors, weights.Card("draft_model", "tiny", "abc", target.config.vocab_size, {"options": {}}))
    return str(path)


def halved(target):
    """The target with weights that half precision holds exactly, as the file does."""
    return target.to(torch.bfloat16).float()


@pytest.fixture(scope="module")
def target():
    return halved(tiny_model.model(seed=3))


def context_of(target, **options):
    return Context(CachedLM(target, **options), tokenizer=tiny_model.tokenizer(), weights_hash=lambda: "abc")


@pytest.mark.parametrize("execution", ["eager", "packed"])
def test_case_05_all_layers_of_the_target_are_always_right(target, tmp_path, execution):
    context = context_of(target, execution=execution)
    path = stored(tmp_path / "w.safetensors", target, (0, 1), np.random.default_rng(0).permutation(300))
    expected = generate(context.lm, [5, 6, 7], max_new_tokens=20).tokens
    for gamma in range(1, 6):
        drafter = build(f"draft_model:weights={path},num_tokens={gamma}", context)
        run = generate(context.lm, [5, 6, 7], drafter, max_new_tokens=20)
        assert run.tokens == expected
        assert run.trace.steps[0].tree.size == gamma
        assert all(step.verdict.accepted == step.tree.size for step in run.trace.steps)


def test_with_few_rows_it_drafts_what_those_rows_say_and_the_text_stays_the_targets(target, tmp_path):
    ids = np.random.default_rng(1).permutation(300)[:150]
    path = stored(tmp_path / "w.safetensors", target, (0,), ids)
    context = context_of(target)
    drafter = build(f"draft_model:weights={path},num_tokens=3", context)
    assert drafter.lm.vocab_size == 150 and drafter.reduced.vocab_size == 300
    run = generate(context.lm, [5, 6, 7], drafter, max_new_tokens=20)
    assert run.tokens == generate(context.lm, [5, 6, 7], max_new_tokens=20).tokens
    module = ShallowDraft(frozen_of(target, ids), target, (0,)).requires_grad_(False)
    text = [5, 6, 7, *run.tokens]
    for step in run.trace.steps:
        drafted = list(text[: step.context_length])
        for token in step.tree.tokens[1:]:
            assert token == ids[int(module(torch.tensor([drafted]))[0, -1].argmax())]
            drafted.append(int(token))
    full = build(f"draft_model:weights={path},vocabulary=full", context)
    assert full.lm.vocab_size == 300 and np.array_equal(full.draft_ids, np.arange(300))


def test_the_embedding_is_the_targets_even_where_that_reads_its_rows_from_the_file(tmp_path):
    made = halved(tiny_model.model(seed=3))
    made.save_pretrained(tmp_path)
    path = stored(tmp_path / "w.safetensors", made, (0, 1), range(60))
    expected = generate(CachedLM(made), [5, 6, 7], DraftModel(CachedLM(made), 3), max_new_tokens=12).tokens
    released = type(made).from_pretrained(tmp_path)
    context = context_of(released, release=True)
    (tmp_path / "w.safetensors").rename(tmp_path / "w")  # nothing of the target's own folder
    (tmp_path / "elsewhere").mkdir()
    path = str((tmp_path / "w").rename(tmp_path / "elsewhere" / "w.safetensors"))
    drafter = build(f"draft_model:weights={path},num_tokens=3", context)
    assert generate(context.lm, [5, 6, 7], drafter, max_new_tokens=12).tokens == expected
    assert drafter.lm.execution.stack.embed._embed == context.lm.execution.embed


def test_weights_of_another_target_or_of_no_known_one_are_refused(target, tmp_path):
    path = stored(tmp_path / "w.safetensors", target, (0,), range(60))
    lm = CachedLM(target)
    for context, message in (
        (Context(lm, weights_hash=lambda: "xyz"), "was trained for tiny"),
        (Context(lm), "give methods.Context a weights_hash"),
        (Context(CachedLM(tiny("llama")), weights_hash=lambda: "abc"), "300 tokens .* this target has 61"),
    ):
        with pytest.raises(ModelError, match=message):
            build(f"draft_model:weights={path}", context)
    with pytest.raises(MethodError, match="'reduced' or 'full'; got 'half'"):
        build(f"draft_model:weights={path},vocabulary=half", Context(lm))


def test_tensors_of_another_drafter_are_named(target, tmp_path):
    path = tmp_path / "w.safetensors"
    tensors = {"join.weight": torch.zeros(2, 2), "ids": torch.arange(3)}
    weights.write(path, tensors, weights.Card("mtp", "tiny", "abc", 300, {}))
    with pytest.raises(ModelError, match=r"lack \['model.norm.weight'\] and hold \['join.weight'\]"):
        distilled.draft_lm(CachedLM(target), lambda: "abc", str(path))


# transformers with the same draft model


def test_the_peer_drafts_with_the_same_weights_gives_the_greedy_text_and_counts_the_targets_calls(target, tmp_path):
    path = stored(tmp_path / "w.safetensors", target, (0, 1), range(60))
    ours = ["autoregressive", f"draft_model:weights={path},num_tokens=3"]
    rivals = peers.contestants(tiny_model.loaded(target, weights_hash="abc"), ours)
    assert list(rivals) == [f"transformers:{name}" for name in ("greedy", "prompt_lookup", "assisted")]
    assisted = rivals["transformers:assisted"]
    expected, plain = rivals["transformers:greedy"].answer([5, 6, 7], 21)
    assert plain == 21
    # The whole head makes the peer's draft model the target itself: four tokens a call, and one that reads the prompt.
    assert assisted.answer([5, 6, 7], 21) == (expected, 6)
    assert assisted.answer([5, 6, 7], 21) == (expected, 6)
    assert assisted.assistant.lm_head.weight is not None and assisted.settings["num_assistant_tokens"] == 3
    embeddings = {id(model.get_input_embeddings()) for model in (assisted.assistant, target)}
    pointers = {model.get_output_embeddings().weight.data_ptr() for model in (assisted.assistant, target)}
    assert len(embeddings) == len(pointers) == 1
    assert "transformers:assisted" not in peers.contestants(tiny_model.loaded(target), ["prompt_lookup"])


def test_a_race_with_a_draft_model_has_the_peers_assisted_generation_in_it(target, tmp_path):
    path = stored(tmp_path / "w.safetensors", target, (0,), range(200))
    name = f"draft_model:weights={path},num_tokens=2"
    loaded = tiny_model.loaded(target, weights_hash="abc")
    rivals = peers.contestants(loaded, [name])
    race = compare(CachedLM(loaded), ["Hello hello"], [name], max_new_tokens=8, repeats=1, rivals=rivals)
    assert race.methods[-1] == "transformers:assisted" and name in race.methods
    assert len({answer.tokens for answer in race.rounds[0].answers.values()}) == 1


def test_the_peer_takes_a_draft_model_by_name_too(target, tmp_path, monkeypatch):
    from specdec_core.model import loading as models

    draft = tiny_model.model(seed=8)
    asked = []

    def load(name, dtype, device):
        asked.append((name, dtype))
        return SimpleNamespace(model=draft)

    monkeypatch.setattr(models, "load", load)
    loaded = tiny_model.loaded(target)
    peer = peers.contestants(loaded, ["draft_model:model=org/small,num_tokens=2"])["transformers:assisted"]
    plain = peers.contestants(loaded)["transformers:greedy"]
    tokens, calls = peer.answer([5, 6, 7], 12)
    assert tokens == plain.answer([5, 6, 7], 12)[0] and 4 <= calls <= 12
    assert asked == [("org/small", torch.float32)] and peer.settings["num_assistant_tokens"] == 2
