"""The training side: conversations in waves, the corpus, the feature module, the loop, the weight files."""

import copy
import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_chat import Letters, chat_model, corpus
from tqdm import tqdm

from specdec_core.base.errors import ModelError, SpecdecError
from specdec_core.core import Sampling, TableLM, generate, one_by_one, together
from specdec_core.drafters import weights
from specdec_core.drafters.feature_net import FeatureDraft
from specdec_core.model.lm import CachedLM
from specdec_core.training import recipes, selfchat, waves
from specdec_core.training.corpus import Batch, Corpus
from specdec_core.training.feature_draft import FeatureObjective, count_hits
from specdec_core.training.loop import Schedule, evaluate, train
from specdec_core.training.selfchat import ANSWER, GIVEN, LOOP, USER, Chat, Template


@pytest.fixture(scope="module")
def loaded():
    return chat_model()


@pytest.fixture(scope="module")
def text(loaded, tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("waves"), loaded)


def test_the_template_is_cut_where_somebody_begins_to_write():
    template = Template.of(Letters())
    decode = Letters().decode
    assert [decode(part) for part in (template.start, template.to_answer, template.to_user)] == [">u", "<>s", "<>u"]
    with pytest.raises(ValueError, match="no chat template"):
        Template.of(type("Plain", (), {"chat_template": None, "name_or_path": "plain"})())


def listened(following, given, speaker, length=40, temperature=0.0):
    """A full conversation of a model that follows each token with the one that ``following`` has for it."""
    logits = np.zeros((61, 61))
    for token, other in following.items():
        logits[token, other] = 99.0
    letters = Letters()
    chat = Chat(
        TableLM(logits), Template.of(letters), lambda text: [], random.Random(0), length, temperature, given, speaker
    )
    while not chat.full:
        together([chat.turn], one_by_one)
        chat.listen()
    return chat


def spoken(chat):
    return [(token, role) for token, role in zip(chat.tokens, chat.roles, strict=True) if role != GIVEN]


def test_turns_follow_each_other_and_every_token_has_its_role():
    template = Template.of(Letters())
    u, s, end = 2, 3, 0
    chat = listened({u: 10, 10: 11, 11: end, s: 20, 20: 21, 21: 22, 22: end}, template.start, USER, length=23)
    assert len(chat.tokens) == len(chat.roles) == 23
    both = [(10, USER), (11, USER), (end, USER), (20, ANSWER), (21, ANSWER), (22, ANSWER), (end, ANSWER)]
    assert spoken(chat) == [*both, *both]
    given = [token for token, role in zip(chat.tokens, chat.roles, strict=True) if role == GIVEN]
    assert Letters().decode(given) == ">u" + ">s" + ">u" + ">s" + ">"


def test_a_question_is_cut_and_a_loop_is_marked_but_for_its_first_round_and_both_turns_are_ended():
    template = Template.of(Letters())
    given = template.start + template.to_answer
    chat = listened({3: 7, 7: 8, 8: 9, 9: 7}, given, ANSWER, length=40)
    assert [role for _, role in spoken(chat)][:30] == [ANSWER] * 3 + [LOOP] * 27
    assert Letters().decode(chat.tokens[len(given) + 30 :][:3]) == "<>u"
    assert selfchat.loop([1, 2] * 14) == 0  # too short to tell


def test_a_conversation_is_a_sequence_of_runs_with_their_prompts_read_anew(loaded):
    """What the engine writes for each turn from the whole text before it, in a cache that knows nothing of it."""
    lm = CachedLM(loaded)
    chats = selfchat.begin(lm, loaded.tokenizer, rows=6, length=90, seed=3, wave=0, paragraphs=[], greedy=0.5)
    rngs = [copy.deepcopy(chat._streams) for chat in chats]
    with tqdm(disable=True) as bar:
        text = selfchat.converse(chats, [], bar)
    assert text["tokens"].shape == (6, 90) and len(text["temperature"].unique()) == 2
    for tokens, roles, temperature, streams in zip(*(part.tolist() for part in text.values()), rngs, strict=True):
        begun = 0
        while begun < 90:
            start = next((at for at in range(begun, 90) if roles[at] != GIVEN), 90)
            begun = next((at for at in range(start, 90) if roles[at] == GIVEN), 90)
            warmth = 1.0 if roles[start : start + 1] == [USER] else temperature
            sampling = Sampling(warmth, top_k=50, top_p=0.95)
            run = generate(lm, tokens[:start], max_new_tokens=begun - start, sampling=sampling, rngs=streams)
            assert list(run.tokens) == tokens[start:begun]


def test_waves_are_the_same_again_side_by_side_and_after_an_interruption(loaded, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    sizes = dict(answer_tokens=1500, rows=8, length=60, quiet=True)
    waves.write(loaded, whole, **sizes)
    names = sorted(path.name for path in whole.iterdir())
    assert len(names) > 4
    expected = Corpus(whole)
    (whole / names[3]).unlink()
    waves.write(loaded, whole, **sizes)
    waves.write(loaded, parts, **{**sizes, "answer_tokens": 300})
    for part in ((0, 2), (1, 2)):
        waves.write(loaded, parts, **sizes, part=part)
    for folder in (whole, parts):
        again = Corpus(folder, len(names))
        assert torch.equal(again.tokens, expected.tokens) and torch.equal(again.roles, expected.roles)


def test_states_of_the_text_alone_are_those_of_its_writing(loaded, text, tmp_path):
    folder = text.paths[0].parent
    waves.pack(folder, tmp_path / "text.npz", Letters())
    waves.states(loaded, tmp_path / "again", tmp_path / "text.npz", rows=16, quiet=True)
    again = Corpus(tmp_path / "again")
    rows = np.arange(4)
    assert torch.equal(again.tokens, text.tokens)
    assert (again.batch(rows).hidden - text.batch(rows).hidden).abs().max() < 1e-4


def test_the_documents_of_a_datastore_are_the_conversations_that_are_trained_on(text, tmp_path):
    waves.pack(text.paths[0].parent, tmp_path / "text.npz", Letters())
    found = list(waves.documents(Letters(), tmp_path / "text.npz"))
    assert len(found) == len(text.training)
    start = Template.of(Letters()).start
    for row, document in zip(text.training, found, strict=True):
        tokens, roles = text.tokens[row].numpy(), text.roles[row].numpy()
        kept = tokens[(roles != LOOP) | (np.arange(len(roles)) < len(start))][len(start) :]
        assert len(document) >= len(kept) and np.array_equal(document[: len(start)], tokens[len(start) :][: len(start)])
    other = Letters()
    other.alphabet = other.alphabet[::-1]
    with pytest.raises(SpecdecError, match="ids of the tokenizer letters"):
        next(waves.documents(other, tmp_path / "text.npz"))


def test_held_out_rows_are_never_trained_on_and_every_other_is_once_an_epoch(text):
    order = text.order(3, seed=0)
    epoch = [next(order) for _ in range(len(text.training) // 3)]
    seen = np.concatenate(epoch)
    assert len(set(seen)) == len(seen) and not set(seen) & set(text.held_out)
    again = text.order(3, seed=0)
    assert all(np.array_equal(next(again), rows) for rows in epoch)
    assert text.statistics()["held_out"] == len(text.held_out) > 0


def test_an_answer_given_twice_counts_once():
    from specdec_core.training.corpus import repeated_turns

    answer = list(range(10, 20))
    tokens = torch.tensor([[1, *answer, 2, *answer], [3, *answer, 4, *reversed(answer)]])
    roles = torch.full_like(tokens, ANSWER)
    roles[:, [0, 11]] = USER
    assert list(repeated_turns(tokens, roles)) == [(0, 12, 22), (1, 1, 11)]


def test_no_conversations_is_an_error_that_says_what_to_run(tmp_path):
    with pytest.raises(SpecdecError, match="specdec train selfchat"):
        Corpus(tmp_path)


@pytest.mark.parametrize("options", [{"normed": True}, {"normed": False}, {"normed": False, "token": False}])
def test_deep_steps_are_what_transformers_layer_says_of_each_chain_alone(loaded, text, options):
    frozen = recipes.frozen_of(loaded.model, text, 40)
    torch.manual_seed(3)
    module = FeatureDraft(frozen, **options).requires_grad_(False)
    batch = text.batch(np.arange(2))
    deep = module(batch.tokens, batch.hidden, steps=3)
    for place in (0, 5, 30):
        tokens, states = batch.tokens[:1], batch.hidden[:1]
        rows = module.joined(tokens[:, 1 : place + 2], states[:, : place + 1])
        for step in range(3):
            length = rows.shape[1]
            turned = module.rotary(rows, torch.arange(length)[None])
            mask = torch.full((length, length), -torch.inf).triu(1)[None, None]
            out = module.layer(rows, attention_mask=mask, position_embeddings=turned)
            last = (out[0] if isinstance(out, tuple) else out)[:, -1]
            assert (last - deep[step][:1, place]).abs().max() < 1e-4
            following = module.joined(tokens[:, place + 2 + step][:, None], last[:, None])
            rows = torch.cat([rows, following], 1)


def test_hits_are_those_of_chains_followed_one_by_one():
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 3, (4, 12), generator=generator)
    roles = torch.randint(1, 3, (4, 12), generator=generator).to(torch.uint8)
    greedy = torch.tensor([True, True, False, True])
    guesses = [torch.randint(0, 3, (4, 12), generator=generator) for _ in range(3)]
    counts = count_hits(Batch(tokens, roles, torch.zeros(4, 12, 1), greedy), guesses)
    expected = torch.zeros(2, 3)
    for row in range(4):
        for place in range(12):
            for depth in range(3):
                at = place + depth + 2
                if not greedy[row] or at >= 12 or roles[row, at] != ANSWER:
                    break
                expected[0, depth] += 1
                if guesses[depth][row, place] != tokens[row, at]:
                    break
                expected[1, depth] += 1
    assert torch.equal(counts, expected)


@pytest.mark.parametrize("name", ["mtp", "eagle", "medusa", "draft_model", "eagle_blind", "eagle_tokens"])
def test_a_recipe_learns_gives_the_same_losses_again_and_goes_on_where_it_stopped(loaded, text, tmp_path, name):
    schedule = Schedule(updates=12, rows=4, every=4, warm=2, rate=3e-3)
    recipe = replace(recipes.RECIPES[name], schedule=schedule, vocabulary=40)
    if name == "draft_model":
        recipe = replace(recipe, options={"layers": (0, 2)})

    def losses(log):
        return [{key: value for key, value in line.items() if key != "seconds"} for line in log]

    frozen = recipes.frozen_of(loaded.model, text, 40)
    logs = []
    for folder, stops in (("one", [None]), ("two", [None]), ("three", [6, None])):
        for stop in stops:
            objective = recipes.objective_of(recipe, loaded.model, frozen)
            log = train(objective, text, schedule, tmp_path / folder, stop_after=stop, quiet=True)
        logs.append(losses(log))
    assert logs[0] == logs[1]
    assert [line["update"] for line in logs[2]] == [4, 6, 8, 12]
    assert logs[2][0] == logs[0][0] and logs[2][-1] == logs[0][-1]
    total = [sum(value for key, value in line.items() if key.startswith(("law", "state"))) for line in logs[0]]
    assert total[-1] < total[0]
    with pytest.raises(SpecdecError, match="another folder"):
        train(objective, text, replace(schedule, rate=1.0), tmp_path / "one", quiet=True)


def test_cooking_writes_weights_with_their_card(loaded, text, tmp_path):
    recipe = replace(recipes.RECIPES["mtp"], schedule=Schedule(updates=4, rows=4, every=2), vocabulary=40)
    out = tmp_path / "mtp.safetensors"
    recipes.cook(recipe, loaded, text, tmp_path / "run", out, stop_after=2)
    assert not out.exists()
    recipes.cook(recipe, loaded, text, tmp_path / "run", out)
    tensors, card = weights.read(out, "tiny", 61)
    assert card.recipe["options"] == {"normed": True} and len(card.acceptance) == 4 and card.data["answers"] > 0
    assert tensors["ids"].shape == (40,) and tensors["join.weight"].dtype == torch.bfloat16
    module = FeatureDraft(recipes.frozen_of(loaded.model, text, 40), True)
    module.load_state_dict({name: value for name, value in tensors.items() if name != "ids"})
    again = replace(recipe, schedule=replace(recipe.schedule, seed=1))
    recipes.cook(again, loaded, text, tmp_path / "more", tmp_path / "more.safetensors", start=out)
    more = weights.read_card(tmp_path / "more.safetensors")
    assert more.tokens == 2 * card.tokens and more.curve[: len(card.curve)] == card.curve
    assert more.recipe["before"] == card.recipe
    with pytest.raises(SpecdecError, match="other tokens"):
        recipes.cook(replace(again, vocabulary=30), loaded, text, tmp_path / "no", tmp_path / "no.st", start=out)
    shares = evaluate(FeatureObjective(module, 1, 0.0), text)
    assert np.allclose(shares, card.acceptance, atol=0.05)


def test_weights_are_refused_for_another_target_another_vocabulary_and_when_damaged(tmp_path):
    path = tmp_path / "eagle.safetensors"
    card = weights.Card("eagle", "some-model", "abc", 61, {"about": "x"})
    weights.write(path, {"join.weight": torch.randn(64, 64)}, card)
    assert weights.read(path, "abc", 61)[1] == card
    with pytest.raises(ModelError, match="trained for some-model"):
        weights.read(path, "xyz", 61)
    with pytest.raises(ModelError, match="vocabulary of 61 tokens .* this target has 62"):
        weights.read(path, "abc", 62)
    with pytest.raises(ModelError, match="specdec train nothing"):
        weights.read(tmp_path / "nothing.safetensors", "abc", 61)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(ModelError, match="cut short"):
        weights.read(path, "abc", 61)
    path.write_bytes(whole[:-5] + bytes(5))
    with pytest.raises(ModelError, match="was altered"):
        weights.read(path, "abc", 61)


def test_the_command_runs_a_recipe_and_prints_its_card(loaded, text, tmp_path, monkeypatch, capsys):
    from specdec_core.commands.cli import main
    from specdec_core.model import loading as models

    monkeypatch.setattr(models, "load", lambda *args, **kwargs: loaded)
    out = tmp_path / "out.safetensors"
    given = ["train", "mtp", "--folder", str(text.paths[0].parent), "--updates", "2", "--vocabulary", "30"]
    assert main([*given, "--out", str(out), "--stop-after", "1"]) == 0
    assert "interrupted as asked" in capsys.readouterr().out
    assert main([*given, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "mtp for tiny" in printed and "draft vocabulary 30" in printed
    assert main(["train", "nonsense", "--folder", str(tmp_path)]) == 2
    assert json.loads((text.paths[0].parent / "mtp" / "log.jsonl").read_text().splitlines()[-1])["update"] == 2


def test_the_ablations_differ_from_eagle_in_one_part_each():
    whole, *others = weights.ablations()
    assert whole.name == "eagle" and whole.target == weights.read_card(weights.shipped("eagle")).target
    for card in others:
        recipe = recipes.RECIPES[card.name]
        assert (card.recipe["options"], card.recipe["objective"]) == (recipe.options, recipe.objective)
        for key in ("schedule", "vocabulary", "waves"):
            assert card.recipe[key] == whole.recipe[key]
        assert (card.tokens, card.data) == (whole.tokens, whole.data)
        assert whole.acceptance[2] > card.acceptance[2], "at depth 3 every part is missed"


def test_the_command_prints_all_cards(capsys):
    from specdec_core.commands import cli

    assert cli.main(["train", "cards"]) == 0
    printed = capsys.readouterr().out
    for card in weights.ablations():
        assert f"{card.name} for {card.target}" in printed
    assert printed.count("held-out acceptance at depth") == len(weights.ablations()) + 4
