"""The mixture-of-experts example: both paths against a loop over experts, and what they avoid."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .script_kit import ROOT, load_script

moe = load_script("moe", "examples")

EXPERTS, TOP = 6, 2
# Operations that read a tensor on the host, or whose result's shape depends on values.
READS = ("_local_scalar_dense", "nonzero", "bincount", "equal", "unique", "masked_select", "item")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Products are too small to share: threads that wait for each other take most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def layer_of(hidden=256, intermediate=128, top=TOP, score="softmax"):
    generator = torch.Generator().manual_seed(0)
    return moe.random_layer(EXPERTS, hidden, intermediate, top, score, generator)


def tokens_of(count, hidden=256):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, hidden, generator=generator).bfloat16()


def bias_of(chosen=(), banned=()):
    bias = torch.zeros(EXPERTS)
    bias[list(chosen)] = 10.0
    bias[list(banned)] = -10.0
    return bias


def farthest(y, reference):
    """The largest relative error of a token."""
    return float(((y.float() - reference).norm(dim=1) / reference.norm(dim=1)).max())


ROUTINGS = {
    "even": (33, TOP, bias_of()),
    "first and last expert without tokens": (33, TOP, bias_of(banned=(0, EXPERTS - 1))),
    "middle experts without tokens": (33, TOP, bias_of(banned=(2, 3))),
    "all tokens to two experts": (40, TOP, bias_of(chosen=(1, 4))),
    "all tokens to the first": (129, 1, bias_of(chosen=(0,))),
    "all tokens to the last": (129, 1, bias_of(chosen=(EXPERTS - 1,))),
    "all tokens to all experts": (7, EXPERTS, bias_of()),
    "one token": (1, TOP, bias_of()),
    "one token to one expert": (1, 1, bias_of(chosen=(3,))),
}


@pytest.mark.parametrize("path", ["prefill", "decode"])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_every_token_gets_what_the_loop_gives_it(path, routing):
    count, top, bias = ROUTINGS[routing]
    layer, x = replace(layer_of(top=top), bias=bias), tokens_of(count)
    chosen = layer.route(x)
    used = chosen.experts.unique()
    assert not (bias[used] < 0).any() and int((bias > 0).sum()) in (0, len(used))
    y = getattr(layer, path)(x, chosen)
    assert y.shape == x.shape and y.dtype == x.dtype
    weights = layer.dequantized()
    # The layer rounds each product, and y, to BF16, of 8 bits; e4m3 activations have 4.
    assert farthest(y, moe.loop(weights, x, chosen, rounded=True)) < 0.015
    assert farthest(y, moe.loop(weights, x, chosen)) < 0.08


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
@pytest.mark.parametrize("hidden, intermediate", [(256, 128), (160, 72), (384, 200)])
def test_both_paths_give_equal_bits(score, hidden, intermediate):
    layer, x = layer_of(hidden, intermediate, score=score), tokens_of(21, hidden)
    y = layer(x, decode=False)
    assert torch.equal(y, layer(x, decode=True))
    assert farthest(y, moe.loop(layer.dequantized(), x, layer.route(x), rounded=True)) < 0.015


@pytest.mark.parametrize("decode", [False, True])
def test_no_tokens(decode):
    assert layer_of()(tokens_of(0), decode).shape == (0, 256)


def test_rows_that_no_token_fills_do_not_matter(monkeypatch):
    """NaN there, of data and of scales, as uninitialized memory may hold."""
    layer, x, spread = layer_of(), tokens_of(17), moe.spread
    expected = layer(x, decode=True)

    def poisoned(pair, plan):
        data, scale = spread(pair, plan)
        empty = torch.ones(data.shape[:2], dtype=torch.bool)
        empty.flatten()[plan.slots] = False
        data.view(torch.uint8)[empty] = 0x7F
        scale[empty] = torch.nan
        return data, scale

    monkeypatch.setattr(moe, "spread", poisoned)
    assert torch.equal(layer(x, decode=True), expected)


def test_a_permutation_is_one_and_stays_within_its_experts():
    choices = torch.rand(50, EXPERTS, generator=torch.Generator().manual_seed(2)).topk(3).indices
    plan = moe.Permutation.of(choices, EXPERTS)
    assert torch.equal(plan.tokens[plan.positions], torch.arange(50)[:, None].expand(50, 3))
    assert torch.equal(plan.positions.flatten().sort().values, torch.arange(150))
    assert torch.equal(plan.counts, choices.flatten().bincount(minlength=EXPERTS).int())
    assert torch.equal(plan.ends, plan.counts.cumsum(0).int())
    assert plan.ends.dtype == plan.counts.dtype == torch.int32
    assert torch.equal(plan.slots[plan.positions] // 50, choices)
    begins = plan.ends - plan.counts
    within = torch.arange(150) - begins[plan.slots // 50]
    assert torch.equal(plan.slots % 50, within) and len(plan.slots.unique()) == 150


def test_the_bias_chooses_and_does_not_weigh():
    x = tokens_of(9)
    layer = replace(layer_of(score="sigmoid"), bias=bias_of(chosen=(1, 4)))
    routing = layer.route(x)
    assert torch.equal(routing.experts.sort().values, torch.tensor([[1, 4]]).expand(9, 2))
    scores = (x.float() @ layer.router.t()).sigmoid().gather(1, routing.experts)
    torch.testing.assert_close(routing.weights, scores / scores.sum(1, keepdim=True))


def test_an_unknown_score_is_refused():
    with pytest.raises(KeyError, match="relu"):
        layer_of(score="relu")(tokens_of(3), decode=False)


class Reads(TorchDispatchMode):
    """Collect the operations that would synchronize with a device."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in READS:
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("decode", [False, True])
def test_nothing_is_read_on_the_host(monkeypatch, decode):
    """But by the CPU's products, for which zeros stand here, and not by the loop it is held to."""
    layer, x = layer_of(), tokens_of(17)

    def zeros(a, b, **options):
        (name,) = {"offsets", "counts"} & set(options)
        assert options[name].dtype == torch.int32 and options[name].is_contiguous()
        return torch.zeros(*a[0].shape[:-1], b[0].shape[1], dtype=torch.bfloat16)

    monkeypatch.setattr(moe, "grouped_matmul", zeros)
    with Reads() as reads:
        layer(x, decode)
    assert not reads.found
    with Reads() as reads:
        moe.loop(layer.dequantized(), x, layer.route(x))
    assert reads.found


def test_readme_shows_the_output(capsys):
    """To what processors differ by in the order of their sums, and roundings that this flips."""
    moe.main()
    fresh = capsys.readouterr().out.strip()
    command = "$ python3 examples/moe.py\n"
    shown = (ROOT / "docs" / "grouped.md").read_text().split(command)[1].split("\n```")[0]
    number = r"\d+\.\d+"
    assert re.sub(number, "", shown) == re.sub(number, "", fresh)
    old, new = ([float(x) for x in re.findall(number, text)] for text in (shown, fresh))
    assert old == pytest.approx(new, abs=2e-3)
