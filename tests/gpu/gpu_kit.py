"""What GPU tests share: problems on the device, ways to run them, and their judgement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from os import cpu_count

import torch

import deep_gemm
from deep_gemm import config, reference, settings
from deep_gemm.config import GemmConfig, StoreConfig, TileConfig
from deep_gemm.config.candidates import finalize
from deep_gemm.kernels import gemm_sm90
from deep_gemm.problem import GemmProblem
from deep_gemm.testing import poison, problems
from deep_gemm.testing.numerics import (
    BLOCK,
    assert_bitwise_equal,
    block_scaled_request,
    compare,
    reference_and_bound,
)

BF16 = torch.bfloat16
H200 = config.by_name("h200")

# --- problems -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Operands on the device; `exact` says that partial sums are exact in the tensor core."""

    a: torch.Tensor
    sfa: torch.Tensor
    b: torch.Tensor
    sfb: torch.Tensor
    exact: bool = False

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The four tensors, in the order of a call."""
        return self.a, self.sfa, self.b, self.sfb

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.a.shape[0], *self.b.shape


def generator(seed: int) -> torch.Generator:
    """Return a generator on the GPU."""
    return torch.Generator("cuda").manual_seed(seed)


def normal(m: int, n: int, k: int, seed: int, **layouts: object) -> Problem:
    """Return normal data; layouts as those of problems.make_block_scaled."""
    return Problem(*problems.make_block_scaled(m, n, k, "cuda", generator(seed), **layouts))


def integers(m: int, n: int, k: int, seed: int) -> Problem:
    """Return small integers, which the tensor core sums exactly, with arbitrary scales."""
    rng = generator(seed)
    _, sfa, _, sfb = problems.make_block_scaled(m, n, k, "cuda", rng)
    a, b = (problems.small_integers(rows, k, "cuda", rng) for rows in (m, n))
    return Problem(a, sfa, b, sfb, exact=True)


# --- configurations -------------------------------------------------------------------------


def configuration(
    block_m: int,
    block_n: int,
    warpgroups: int,
    cluster: tuple[int, int] = (1, 1),
    stages: int = 0,
    *,
    swap_ab: bool = False,
    **fields: object,
) -> GemmConfig:
    """Return a configuration, legal or not, with its store path; 0 stages: as many as fit."""
    tile = TileConfig(block_m, block_n, warpgroups, swap_ab=swap_ab)
    whole = finalize(GemmConfig(tile, *cluster, 0, StoreConfig(0, 0, 0), **fields), H200)
    return replace(whole, num_stages=stages) if stages else whole


BASIC = configuration(128, 64, 2)
SPLIT_K = configuration(64, 96, 1, cluster=(2, 1), split_k=2)
SPLIT_K_128 = configuration(128, 128, 2, split_k=2)
SWAP_AB = configuration(32, 64, 1, swap_ab=True)
SWAP_AB_SPLIT_K = configuration(16, 64, 1, swap_ab=True, split_k=4)
SWAP_AB_SPLIT_K_8 = configuration(8, 64, 1, swap_ab=True, split_k=8)
SWAP_AB_SPLIT_K_128 = configuration(32, 128, 2, swap_ab=True, split_k=2)
FORCED = (SWAP_AB_SPLIT_K, SWAP_AB_SPLIT_K_8, SWAP_AB_SPLIT_K_128, SPLIT_K, SPLIT_K_128)


def load_all(configs: Iterable[GemmConfig]) -> None:
    """Compile and load kernels, several at a time; later calls find them."""
    index = torch.cuda.current_device()
    with ThreadPoolExecutor(cpu_count()) as pool:
        list(pool.map(lambda c: gemm_sm90.spec(c).load(index), dict.fromkeys(configs)))


def label(one: GemmConfig | None) -> str:
    """Return the name of a configuration that is forced; None: the choice is left alone."""
    return "chosen" if one is None else one.name


def forcing(one: GemmConfig | None) -> AbstractContextManager[None]:
    """Force a configuration inside a `with` block; with None leave the choice alone."""
    return nullcontext() if one is None else config.forced(one)


def chosen(problem: Problem, static_b: bool = False) -> GemmConfig:
    """Return the configuration that a call on the current device would run with now."""
    device = config.from_index(torch.cuda.current_device())
    asked = GemmProblem.block_scaled(*problem.shape, static_b)
    return config.select(asked, device, settings.current().num_sms)


@dataclass(frozen=True)
class Way:
    """How to run a product: the chosen configuration (None) or a forced one, B static or not."""

    config: GemmConfig | None = None
    static_b: bool = False

    def __str__(self) -> str:
        return label(self.config) + ("-static" if self.static_b else "")

    def run(self, problem: Problem) -> torch.Tensor:
        """Run a problem this way, as run()."""
        with forcing(self.config):
            return run(problem, static_b=self.static_b)


WAYS = (Way(), Way(static_b=True), *map(Way, FORCED))

# --- calls ----------------------------------------------------------------------------------


def call(problem: Problem, out: torch.Tensor, static_b: bool = False) -> None:
    """Call the GEMM."""
    a, sfa, b, sfb = problem.tensors
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out, static_b=static_b)


def run(problem: Problem, row_pad: int = 8, static_b: bool = False) -> torch.Tensor:
    """Call the GEMM with an output among canaries, check them, and return the output view."""
    m, n, _ = problem.shape
    out, check = poison.canary(m, n, BF16, "cuda", row_pad)
    call(problem, out, static_b)
    check()
    return out


def judge(problem: Problem, out: torch.Tensor, static_b: bool = False) -> None:
    """Fail unless every element of `out` is within its bound; exact problems also bit for bit.

    Bits depend on the parts of K that are summed apart: to be called while that choice still holds.
    """
    report = compare(
        out, *reference_and_bound(*problem.tensors, BF16, exact_products=problem.exact)
    )
    assert report.ok, report
    if problem.exact:
        wanted = summed_in_parts(problem, chosen(problem, static_b).split_k)
        assert_bitwise_equal(out, wanted, "GPU and reference")


def parts_of_k(k: int, parts: int) -> Iterator[tuple[slice, slice]]:
    """Yield the k-blocks and the columns of each part; the first ones have one block more."""
    blocks = -(-k // BLOCK)
    sizes = [blocks // parts + (part < blocks % parts) for part in range(parts)]
    for first, last in pairwise(accumulate(sizes, initial=0)):
        yield slice(first, last), slice(first * BLOCK, min(last * BLOCK, k))


def summed_in_parts(problem: Problem, parts: int) -> torch.Tensor:
    """Return the reference's bf16 result with so many parts of K summed apart, added in order."""
    a, sfa, b, sfb = problem.tensors
    total: torch.Tensor | None = None
    for blocks, columns in parts_of_k(problem.shape[2], parts):
        part = torch.empty(len(a), len(b), dtype=torch.float32, device=a.device)
        operands = a[:, columns], sfa[:, blocks], b[:, columns], sfb[:, blocks]
        reference.gemm(*block_scaled_request(*operands, part))
        total = part if total is None else total.add_(part)
    assert total is not None
    return total.to(BF16)


# --- a chain of calls -----------------------------------------------------------------------


def check_chain(m: int, n: int, seed: int, static_b: bool = False) -> None:
    """Fail unless each of twenty calls back to back waits for the A that the one before writes.

    The bf16 output of one call, taken as FP8 bytes, is the A of the next. B picks one byte for each
    output, so every link is exact and its bytes are finite FP8; the NaN that fill a link beforehand
    reach the end of the chain if a call reads too early.
    """
    rng = generator(seed)
    a = problems.random_e4m3(m, 2 * n, "cuda", rng)
    picked = torch.zeros(n, 2 * n, dtype=torch.uint8, device="cuda")
    places = torch.randperm(2 * n, device="cuda", generator=rng)[:n]
    picked[torch.arange(n, device="cuda"), places] = 0x38  # 1.0
    b = picked.view(a.dtype)
    sfa, sfb = torch.ones(m, n // 64, device="cuda"), torch.ones(n // 128, n // 64, device="cuda")
    links = [torch.empty(m, n, dtype=BF16, device="cuda") for _ in range(21)]

    torch.cuda.synchronize()  # nobody writes B from here on

    def chain(wait: bool) -> list[torch.Tensor]:
        for link in links:
            poison.nan_fill_(link)
        links[0].view(torch.uint8).copy_(a.view(torch.uint8))
        for source, target in pairwise(links):
            call(Problem(source.view(a.dtype), sfa, b, sfb), target, static_b)
            if wait:
                torch.cuda.synchronize()
        return [link.clone() for link in links]

    wanted = chain(True)
    assert all(torch.isfinite(link).all() for link in wanted[1:])
    for step, (got, right) in enumerate(zip(chain(False), wanted, strict=True)):
        assert_bitwise_equal(got, right, f"link {step}")
