"""A mixture-of-experts layer on grouped products: prefill by offsets, decode by counts.

python3 examples/moe.py                    8 small experts on the CPU; --device cuda on a Hopper GPU
python3 examples/moe.py --device cuda --experts 256 --hidden 7168 --intermediate 2048 --top 8 \
    --score sigmoid --tokens 4096 --batch 128      DeepSeek-V3's layer, less its shared expert

Weights and tokens are random, from --seed. No step of the layer reads a device tensor on the host,
so both paths can be captured in a CUDA graph. Under the drop-in names the same products are
m_grouped_fp8_gemm_nt_contiguous(use_psum_layout=True) and m_grouped_fp8_gemm_nt_masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

import torch
import typer
from torch.utils.benchmark import Timer

from deep_gemm import dequantize, grouped_matmul, per_block_cast_to_fp8, per_token_cast_to_fp8
from deep_gemm.quant import BLOCK_128X128, ROW_1X128

Pair = tuple[torch.Tensor, torch.Tensor]  # FP8 data and their float32 scales
Function = Callable[[torch.Tensor], torch.Tensor]
SCORES: dict[str, Function] = {"softmax": partial(torch.softmax, dim=1), "sigmoid": torch.sigmoid}


class Routing(NamedTuple):
    """Of each token: its experts, int64 [tokens, top], distinct, and their float32 weights."""

    experts: torch.Tensor
    weights: torch.Tensor


@dataclass(frozen=True)
class Permutation:
    """The tokens * top rows that experts compute, sorted by expert; all of it on the device.

    tokens: int64 [rows], the token of each row.
    positions: int64 [tokens, top], the row of each token's choice.
    slots: int64 [rows], where each row goes in a stack [experts, tokens, ..], flattened. A token
        has at most one row of an expert, so an expert's share of the stack cannot overflow.
    ends, counts: int32 [experts], the row after each expert's last, and how many it has.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    ends: torch.Tensor
    counts: torch.Tensor

    @classmethod
    def of(cls, choices: torch.Tensor, experts: int) -> Permutation:
        """Sort choices [tokens, top] of `experts`. (torch.bincount would read them on the host.)"""
        tokens, top = choices.shape
        by_expert, order = choices.flatten().sort(stable=True)
        rows = torch.arange(len(order), device=order.device)
        positions = torch.empty_like(order).scatter_(0, order, rows).view(tokens, top)
        slots = by_expert * tokens + rows - torch.searchsorted(by_expert, by_expert)
        numbers = torch.arange(experts, device=order.device)
        ends = torch.searchsorted(by_expert, numbers, right=True, out_int32=True)
        counts = torch.diff(ends, prepend=ends.new_zeros(1))
        return cls(order // top, positions, slots, ends, counts)


@dataclass(frozen=True)
class MoeLayer:
    """Experts in FP8: y = sum over a token's experts of weight * down(silu(gate(x)) * up(x)).

    router: float32 [experts, hidden].
    bias: float32 [experts], added to the scores to choose experts, not to weigh them.
    up: e4m3 [experts, 2 * intermediate, hidden], gate's rows first, and its scales for 128 x 128.
    down: e4m3 [experts, hidden, intermediate], and its scales for 128 x 128.
    top: experts of a token.
    score: "softmax" or "sigmoid" of the router's logits; the weights of a token have a sum of 1.
    """

    router: torch.Tensor
    bias: torch.Tensor
    up: Pair
    down: Pair
    top: int
    score: str = "softmax"

    def __call__(self, x: torch.Tensor, decode: bool) -> torch.Tensor:
        """Return y like x [tokens, hidden], by the experts that the router chooses."""
        return (self.decode if decode else self.prefill)(x, self.route(x))

    def route(self, x: torch.Tensor) -> Routing:
        """Choose the experts of tokens x [tokens, hidden]."""
        scores = SCORES[self.score](x.float() @ self.router.t())
        experts = (scores + self.bias).topk(self.top, dim=1).indices
        weights = scores.gather(1, experts)
        return Routing(experts, weights / weights.sum(1, keepdim=True))

    def prefill(self, x: torch.Tensor, routing: Routing) -> torch.Tensor:
        """Return y like x [tokens, hidden]; rows of all experts follow one another, unpadded."""
        plan = Permutation.of(routing.experts, len(self.router))
        product = partial(grouped_matmul, offsets=plan.ends, alignment=1, static_b=True)
        up = product(take(cast(x), plan.tokens), self.up)
        down = product(cast(swiglu(up)), self.down)
        return combine(down, plan, routing).to(x.dtype)

    def decode(self, x: torch.Tensor, routing: Routing) -> torch.Tensor:
        """Return y like x [tokens, hidden]; each expert has matrices of as many rows as x.

        Rows from an expert's count on hold anything and are never looked at: what is not a product
        works on tokens * top rows. For a few hundred tokens: the matrices take experts * tokens *
        (3 * hidden + 5 * intermediate) bytes.
        """
        plan = Permutation.of(routing.experts, len(self.router))
        hint = -(-routing.experts.numel() // len(self.router))  # rows of an expert, no limit
        product = partial(grouped_matmul, counts=plan.counts, expected_m=hint, static_b=True)
        up = product(spread(take(cast(x), plan.tokens), plan), self.up)
        h = cast(swiglu(up.flatten(0, 1)[plan.slots]))
        down = product(spread(h, plan), self.down)
        return combine(down.flatten(0, 1)[plan.slots], plan, routing).to(x.dtype)

    def dequantized(self) -> list[Pair]:
        """Return the (gate and up, down) of each expert in float32."""
        up, down = (
            [dequantize(*one, BLOCK_128X128) for one in zip(*pairs, strict=True)]
            for pairs in (self.up, self.down)
        )
        return list(zip(up, down, strict=True))


def cast(x: torch.Tensor) -> Pair:
    """Return x in FP8 with scales of 1 x 128; saturating, since to raise means to synchronize."""
    return per_token_cast_to_fp8(x, overflow="saturate")


def swiglu(x: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up in float32 of x [rows, gate and up]."""
    gate, up = x.float().chunk(2, dim=1)
    return torch.nn.functional.silu(gate) * up


def take(pair: Pair, rows: torch.Tensor) -> Pair:
    """Return rows of data and scales; FP8 as bytes, which every version of torch can index."""
    data, scale = pair
    return data.view(torch.uint8)[rows].view(data.dtype), scale[rows]


def spread(pair: Pair, plan: Permutation) -> Pair:
    """Return [experts, tokens, columns] of data and scales: rows in slots, others undefined."""
    shape = len(plan.counts), len(plan.positions)
    data, scale = (part.new_empty(*shape, part.shape[1]) for part in pair)
    data.view(torch.uint8).flatten(0, 1)[plan.slots] = pair[0].view(torch.uint8)
    scale.flatten(0, 1)[plan.slots] = pair[1]
    return data, scale


def combine(rows: torch.Tensor, plan: Permutation, routing: Routing) -> torch.Tensor:
    """Return float32 [tokens, hidden]: the weighted rows of each token, always in one order."""
    return (rows[plan.positions] * routing.weights[..., None]).sum(1)


def captured(layer: MoeLayer, tokens: int) -> Function:
    """Return route() and decode() of so many tokens as a CUDA graph; every y is the same memory."""
    graph, router = torch.cuda.CUDAGraph(), layer.router
    static_x = router.new_zeros(tokens, router.shape[1], dtype=torch.bfloat16)
    with torch.cuda.device(router.device):
        layer(static_x, decode=True)  # compiles and loads kernels, which a capture cannot
        with torch.cuda.graph(graph):
            static_y = layer(static_x, decode=True)

    def replay(x: torch.Tensor) -> torch.Tensor:
        static_x.copy_(x)
        graph.replay()
        return static_y

    return replay


def random_layer(
    experts: int, hidden: int, intermediate: int, top: int, score: str, generator: torch.Generator
) -> MoeLayer:
    """Return a layer of normal weights over the root of K, quantized one expert at a time."""

    def normal(n: int, k: int) -> torch.Tensor:
        return torch.randn(n, k, device=generator.device, generator=generator) / k**0.5

    def stack(n: int, k: int) -> Pair:
        pairs = [per_block_cast_to_fp8(normal(n, k)) for _ in range(experts)]
        return torch.stack([q for q, _ in pairs]), torch.stack([sf for _, sf in pairs])

    router, bias = normal(experts, hidden), torch.zeros(experts, device=generator.device)
    up, down = stack(2 * intermediate, hidden), stack(hidden, intermediate)
    return MoeLayer(router, bias, up, down, top, score)


def loop(
    weights: Sequence[Pair], x: torch.Tensor, routing: Routing, rounded: bool = False
) -> torch.Tensor:
    """Return float32 y, expert by expert; `rounded` to FP8 and BF16 where the layer rounds."""
    y = torch.zeros_like(x, dtype=torch.float32)
    for expert in routing.experts.unique().tolist():
        token, choice = (routing.experts == expert).nonzero(as_tuple=True)
        value = x[token]
        for i, weight in enumerate(weights[expert]):
            value = swiglu(value) if i else value
            value = dequantize(*cast(value), ROW_1X128) if rounded else value
            value = value.to(weight.dtype) @ weight.t()
            value = value.bfloat16() if rounded else value
        y.index_add_(0, token, value * routing.weights[token, choice, None])
    return y


@torch.inference_mode()
def main(
    device: Annotated[str, typer.Option(help="cpu, or cuda: a Hopper GPU.")] = "cpu",
    experts: int = 8,
    hidden: int = 256,
    intermediate: int = 512,
    top: Annotated[int, typer.Option(help="Experts of a token.")] = 2,
    score: Annotated[str, typer.Option(help="softmax or sigmoid.")] = "softmax",
    tokens: Annotated[int, typer.Option(help="Of the prefill.")] = 64,
    batch: Annotated[int, typer.Option(help="Tokens of a decode step.")] = 16,
    seed: int = 0,
) -> None:
    """Run prefill and decode, and compare them with a loop over experts."""
    generator = torch.Generator(device).manual_seed(seed)
    layer = random_layer(experts, hidden, intermediate, top, score, generator)
    weights = layer.dequantized()
    typer.echo(f"{experts} experts of random weights (seed {seed}), {score}, top {top}, {device}")
    for name, count in (("prefill", tokens), ("decode", batch)):
        x = torch.randn(count, hidden, device=device, generator=generator).bfloat16()
        decode = name == "decode"
        run = captured(layer, count) if decode and x.is_cuda else partial(layer, decode=decode)
        y, routing = run(x).float(), layer.route(x)
        exact, alike = (loop(weights, x, routing, rounded) for rounded in (False, True))
        rows = Permutation.of(routing.experts, experts).counts
        typer.echo(
            f"{name}: {count} tokens, {rows.min()} to {rows.max()} for an expert; relative error "
            f"{(y - exact).norm() / exact.norm():.4f} to a float32 loop, "
            f"{(y - alike).norm() / alike.norm():.4f} to one that rounds alike"
        )
        if x.is_cuda:
            ready = [(up.bfloat16(), down.bfloat16()) for up, down in weights]
            calls = partial(run, x), partial(loop, ready, x, routing)
            ours, theirs = (Timer("f()", globals={"f": f}).timeit(10).mean * 1e3 for f in calls)
            typer.echo(f"{name}: {ours:.3f} ms, a loop over experts in BF16 {theirs:.3f} ms")


if __name__ == "__main__":
    typer.run(main)
