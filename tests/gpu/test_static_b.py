"""static_b: weights may be read before the kernels ahead have ended, and nothing else may."""

from __future__ import annotations

import ctypes
from itertools import cycle

import pytest
import torch

import deep_gemm
from deep_gemm import config
from deep_gemm.jit import TranslationUnit, build, driver
from deep_gemm.jit.launch import Launcher, LaunchShape
from deep_gemm.jit.unit import OPTIONS
from deep_gemm.testing import poison
from deep_gemm.testing.numerics import assert_bitwise_equal

from .gpu_kit import (
    BASIC,
    BF16,
    SPLIT_K,
    SWAP_AB_SPLIT_K,
    Problem,
    Way,
    call,
    check_chain,
    chosen,
    configuration,
    forcing,
    label,
    load_all,
    normal,
    run,
)

SWAP_AB_8 = configuration(8, 64, 1, swap_ab=True)
TWO_AN_SM = configuration(8, 64, 1, swap_ab=True, ctas_per_sm=2)
MULTICAST = configuration(128, 128, 2, cluster=(2, 1))
SPLIT_K_64 = configuration(64, 64, 1, split_k=2)
# More than half of the SMs are busy, so that B is read early where it may be.
EARLY = (
    (SWAP_AB_8, 8, 8448, 2048),
    (SWAP_AB_SPLIT_K, 16, 2112, 7168),
    (SPLIT_K_64, 64, 4096, 7168),
    (MULTICAST, 512, 4096, 2048),
)
CHOSEN = ((None, 1, 8448, 2048), (None, 64, 4096, 7168), (None, 512, 4096, 2048))
CONFIGS = (None, BASIC, SPLIT_K, SWAP_AB_8, TWO_AN_SM, SWAP_AB_SPLIT_K)
STEPS = 20


def case_id(part):
    return str(part) if isinstance(part, int) else label(part)


on_early = pytest.mark.parametrize("forced, m, n, k", EARLY, ids=case_id)
on_all = pytest.mark.parametrize("forced, m, n, k", EARLY + CHOSEN, ids=case_id)
every_config = pytest.mark.parametrize("forced", CONFIGS, ids=label)
in_graph = pytest.mark.parametrize("graphed", [False, True], ids=["eager", "graph"])
with_pdl = pytest.mark.parametrize("pdl", [True, False], ids=["pdl", "no_pdl"])


@pytest.fixture(scope="module", autouse=True)
def kernels():
    load_all([*CONFIGS[1:], MULTICAST, SPLIT_K_64])


def results(calls, count, m, n, graphed):
    """Return what `count` calls write, made back to back or in a graph that is then replayed."""
    outs = [poison.nan_fill_(torch.empty(m, n, dtype=BF16, device="cuda")) for _ in range(count)]
    torch.cuda.synchronize()
    if graphed:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            calls(outs)
        graph.replay()
    else:
        calls(outs)
    torch.cuda.synchronize()
    return outs


# --- a kernel ahead that writes late --------------------------------------------------------

SPIN_CYCLES = 400_000  # some 200 us, far longer than the launch of the next kernel
WRITER_THREADS = 256
LATE_WRITER = f"""
#include "deep_gemm/ptx/control.cuh"

struct Params {{
    const uint4* source;
    uint4* target;
    long long count, cycles;
}};

extern "C" __global__ void __launch_bounds__({WRITER_THREADS})
late_writer(const __grid_constant__ Params p) {{
    deep_gemm::ptx::dependency_launch();
    const long long start = clock64();
    while (clock64() - start < p.cycles) {{}}
    const long long first = blockIdx.x * blockDim.x + threadIdx.x;
    for (long long i = first; i < p.count; i += gridDim.x * blockDim.x) p.target[i] = p.source[i];
}}
"""
WRITER_UNIT = TranslationUnit("late_writer", "late_writer", LATE_WRITER, OPTIONS)


class WriterParams(ctypes.Structure):
    """Params of the kernel."""

    _fields_ = [
        ("source", ctypes.c_uint64),
        ("target", ctypes.c_uint64),
        ("count", ctypes.c_int64),
        ("cycles", ctypes.c_int64),
    ]


class LateWriter:
    """Launches a kernel that lets its successor start at once, and copies long after.

    It waits itself for all that is ahead of it. The bytes must be whole 16-byte units.
    """

    def __init__(self, source, target, blocks):
        assert source.nbytes == target.nbytes and target.nbytes % 16 == 0
        self.tensors = source, target
        count = target.nbytes // 16
        self.params = WriterParams(source.data_ptr(), target.data_ptr(), count, SPIN_CYCLES)
        function = driver.load(build(WRITER_UNIT), torch.cuda.current_device())
        address = ctypes.addressof(self.params)
        self.launcher = Launcher(function, LaunchShape(WRITER_THREADS), blocks, False, address)

    def __call__(self):
        self.launcher.launch(torch.cuda.current_stream().cuda_stream)


def packed(problem):
    """Return the bytes of a problem's tensors in one buffer, in order, and the problem in them."""
    parts = [x.contiguous().view(torch.uint8).flatten() for x in problem.tensors]
    assert not any(len(part) % 16 for part in parts)
    flat = torch.cat(parts)
    views = flat.split([len(part) for part in parts])
    pairs = zip(views, problem.tensors, strict=True)
    return flat, Problem(*(view.view(x.dtype).view(x.shape) for view, x in pairs))


class Scene:
    """Tensors that late writers fill with two contents, alternately, and the D of each."""

    def __init__(self, shape, seed, static_b, writes_b, blocks=16):
        """Few blocks leave most SMs to the product, which starts on them while the writer spins."""
        one, other = (normal(*shape, seed + i) for i in range(2))
        if not writes_b:
            other = Problem(other.a, other.sfa, one.b, one.sfb)
        sources = [packed(one)[0], packed(other)[0]]
        live, self.problem = packed(other)
        bytes_of_a = one.a.nbytes + one.sfa.nbytes  # they lie first
        written = len(live) if writes_b else bytes_of_a
        self.writers = [LateWriter(x[:written], live[:written], blocks) for x in sources]
        self.static_b, self.shape = static_b, shape
        self.right = [self.quietly(source, live) for source in sources]
        assert not torch.equal(*self.right)

    def quietly(self, source, live):
        """Return the result of one content, with nothing else in flight."""
        live.copy_(source)
        torch.cuda.synchronize()
        out = run(self.problem, static_b=self.static_b)
        torch.cuda.synchronize()
        return out.clone()

    def run(self, graphed, between=None):
        """Return the results of STEPS steps, each a late write, a call `between`, the product."""

        def steps(outs):
            for write, out in zip(cycle(self.writers), outs, strict=False):
                write()
                if between is not None:
                    between()
                call(self.problem, out, self.static_b)

        return results(steps, STEPS, *self.shape[:2], graphed)

    def check(self, outs):
        """Fail unless every step has seen what was written right ahead of it."""
        for step, (out, right) in enumerate(zip(outs, cycle(self.right), strict=False)):
            assert_bitwise_equal(out, right, f"step {step}")


@in_graph
@pytest.mark.parametrize("blocks", [16, 132])
@on_all
def test_a_late_write_of_any_operand_is_waited_for(forced, m, n, k, blocks, graphed, seed):
    with forcing(forced):
        scene = Scene((m, n, k), seed, static_b=False, writes_b=True, blocks=blocks)
        scene.check(scene.run(graphed))


@in_graph
@on_all
def test_a_late_write_two_kernels_ahead_is_waited_for(forced, m, n, k, graphed, seed):
    small = normal(8, 64, 128, seed + 2)
    out = torch.empty(8, 64, dtype=BF16, device="cuda")
    with forcing(forced):
        scene = Scene((m, n, k), seed, static_b=False, writes_b=True)
        call(small, out)
        scene.check(scene.run(graphed, between=lambda: call(small, out)))


@in_graph
@on_all
def test_a_late_write_of_a_is_waited_for_where_b_is_static(forced, m, n, k, graphed, seed):
    with forcing(forced):
        scene = Scene((m, n, k), seed, static_b=True, writes_b=False)
        scene.check(scene.run(graphed))


@in_graph
@on_early
def test_a_late_write_of_b_is_missed_where_b_is_called_static(forced, m, n, k, graphed, seed):
    """The caller lies: that this shows means that the tests above could fail."""
    with config.forced(forced):
        scene = Scene((m, n, k), seed, static_b=True, writes_b=True)
        outs = scene.run(graphed)
        missed = [not torch.equal(*pair) for pair in zip(outs, cycle(scene.right), strict=False)]
        assert any(missed)


@in_graph
@on_early
def test_nothing_is_read_early_without_dependent_launch(forced, m, n, k, graphed, seed):
    with config.forced(forced), deep_gemm.override(pdl=False):
        scene = Scene((m, n, k), seed, static_b=True, writes_b=True)
        scene.check(scene.run(graphed))


# --- B that nobody writes -------------------------------------------------------------------


@in_graph
@with_pdl
@pytest.mark.parametrize("n, k", [(2112, 7168), (8448, 2048), (24576, 1536)])
def test_static_b_gives_the_same_bits(n, k, pdl, graphed, seed):
    """With the choice for every M: bits depend on split-K, so all calls are forced to it."""
    whole = normal(300, n, k, seed)
    few = (1, 7, 8, 9, 16, 31, 64, 65, 128, 300)
    problems = [Problem(whole.a[:m], whole.sfa[:m], whole.b, whole.sfb) for m in few]
    cases = [(problem, chosen(problem, static_b=True)) for problem in problems]

    def calls(outs):
        for (problem, one), out in zip(cycle(cases), outs, strict=False):
            with config.forced(one):
                call(problem, out[: len(problem.a)], static_b=True)

    with deep_gemm.override(pdl=pdl):
        wanted = [Way(one).run(problem) for problem, one in cases]
        found = results(calls, 2 * len(few), 300, n, graphed)
        for out, right in zip(found, cycle(wanted), strict=False):
            assert_bitwise_equal(out[: len(right)], right, f"{len(right)} rows")


@with_pdl
@every_config
@pytest.mark.parametrize("m, n", [(8, 4608), (1000, 512)])
def test_back_to_back_calls_wait_for_their_a(m, n, forced, pdl, seed):
    with forcing(forced), deep_gemm.override(pdl=pdl):
        check_chain(m, n, seed, static_b=True)


@in_graph
@every_config
@pytest.mark.parametrize("m, n", [(8, 8448), (64, 4096)])
def test_of_two_calls_into_one_output_the_last_one_stays(m, n, forced, graphed, seed):
    """The first takes longer, so that the second is ready to store while it still runs."""
    slow, fast = normal(m, n, 7168, seed), normal(m, n, 512, seed + 1)

    def calls(outs):
        for out in outs:
            call(slow, out, static_b=True)
            call(fast, out, static_b=True)

    with forcing(forced):
        run(slow, static_b=True)  # loads the kernel before a capture
        wanted = run(fast, static_b=True)
        for step, out in enumerate(results(calls, STEPS, m, n, graphed)):
            assert_bitwise_equal(out, wanted, f"output {step}")
