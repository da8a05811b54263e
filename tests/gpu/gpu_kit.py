"""What GPU tests share: problems on the device, a call among canaries, and its judgement."""

from __future__ import annotations

from dataclasses import dataclass

import torch

import deep_gemm
from deep_gemm.reference import block_scaled_gemm_nt
from deep_gemm.testing import problems
from deep_gemm.testing.numerics import assert_bitwise_equal, compare, reference_and_bound
from deep_gemm.testing.poison import canary

BF16 = torch.bfloat16


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


def generator(seed: int) -> torch.Generator:
    """Return a generator on the GPU."""
    return torch.Generator("cuda").manual_seed(seed)


def normal(m: int, n: int, k: int, seed: int, **layouts: object) -> Problem:
    """Return normal data; layouts as in problems.make_block_scaled."""
    return Problem(*problems.make_block_scaled(m, n, k, "cuda", generator(seed), **layouts))


def integers(m: int, n: int, k: int, seed: int) -> Problem:
    """Return small integers, which the tensor core sums exactly, with arbitrary scales."""
    rng = generator(seed)
    _, sfa, _, sfb = problems.make_block_scaled(m, n, k, "cuda", rng)
    a, b = (problems.small_integers(rows, k, "cuda", rng) for rows in (m, n))
    return Problem(a, sfa, b, sfb, exact=True)


def run(problem: Problem, row_pad: int = 8) -> torch.Tensor:
    """Call the GEMM with an output among canaries, check them, and return the output view."""
    a, sfa, b, sfb = problem.tensors
    out, check = canary(a.shape[0], b.shape[0], BF16, "cuda", row_pad)
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out)
    check()
    return out


def judge(problem: Problem, out: torch.Tensor) -> None:
    """Fail unless every element of `out` is within its bound; exact problems also bit for bit."""
    report = compare(
        out, *reference_and_bound(*problem.tensors, BF16, exact_products=problem.exact)
    )
    assert report.ok, report
    if problem.exact:
        wanted = torch.empty(out.shape, dtype=BF16, device=out.device)
        block_scaled_gemm_nt(*problem.tensors, wanted)
        assert_bitwise_equal(out, wanted, "GPU and reference")
