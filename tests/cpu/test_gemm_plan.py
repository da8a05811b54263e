"""Plans of the GEMM kernel against a fake driver: grid, parameter and maps of a launch."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from deep_gemm import override
from deep_gemm.config import GemmConfig, StoreConfig, TileConfig, forced, select
from deep_gemm.config.prefetch import early_k_blocks
from deep_gemm.config.shared_storage import shared_storage
from deep_gemm.errors import UnsupportedError
from deep_gemm.jit import launch
from deep_gemm.kernels import gemm_plan, gemm_sm90
from deep_gemm.kernels.launch_plan import LaunchPlan, offset_of
from deep_gemm.problem import CMode, GemmProblem

from .config_kit import H200, VARIANTS, sized
from .plan_kit import DEVICE, Seen, seen, tensors_of

__all__ = ["seen"]
SPLIT_K = GemmConfig(TileConfig(8, 64, 1, swap_ab=True), 1, 1, 12, StoreConfig(64, 8, 1), 4)
N_TAIL = GemmConfig(TileConfig(128, 136, 2), 1, 1, 5, StoreConfig(64, 136, 1))
MAPS = ("map_a", "map_b", "map_d", "map_b_tail", "map_d_tail")


class Planned:
    """A plan with the struct of its parameter, and how to read what it launched."""

    def __init__(self, problem: GemmProblem, seen: Seen):
        self.problem, self.seen = problem, seen
        self.config = select(problem, H200)
        self.struct = gemm_sm90.spec(self.config).params
        seen.params_bytes = ctypes.sizeof(self.struct)
        self.plan: LaunchPlan = gemm_plan.plan(problem, tensors_of(problem))

    def launch(self, *factors: float, **addresses: int) -> tuple[launch.LaunchConfig, Any]:
        """Return the geometry and the parameter of a launch."""
        self.plan(tensors_of(self.problem, **addresses), *(factors or (1.0, 1.0)))
        launched = self.seen.launches[-1]
        return launched.geometry, launched.params(self.struct)

    def offsets(self, *names: str) -> list[int]:
        return [offset_of(self.struct, name) for name in names]


def planned(seen: Seen, m: int, n: int, k: int, static_b: bool = False) -> Planned:
    return Planned(GemmProblem.block_scaled(m, n, k, static_b), seen)


# --- bindings -------------------------------------------------------------------------------------


def test_maps_are_encoded_once_and_then_patched_where_an_address_changed(seen: Seen) -> None:
    made = planned(seen, 5, 4096, 7168)
    _, params = made.launch(a=0x1000, sfa=0x2000, b=0x3000, sfb=0x4000, d=0x5000)
    assert (params.sfa, params.sfb) == (0x2000, 0x4000)
    at = made.offsets("map_a", "map_b", "map_d")
    assert seen.encoded == dict(zip(at, (0x1000, 0x3000, 0x5000), strict=True))
    seen.forget_maps()
    _, params = made.launch(a=0x1000, sfa=0x2010, b=0x3000, sfb=0x4010, d=0x6000)
    assert not seen.encoded and seen.patched == {at[2]: 0x6000}
    assert (params.sfa, params.sfb) == (0x2010, 0x4010)


def test_both_maps_of_b_and_of_d_follow_their_address(seen: Seen) -> None:
    with forced(N_TAIL):
        made = planned(seen, 256, 4096, 7168)
        first = {"a": 0x1000, "b": 0x3000, "d": 0x5000}
        made.launch(**first)
    at = dict(zip(MAPS, made.offsets(*MAPS), strict=True))
    of = {"a": ("map_a",), "b": ("map_b", "map_b_tail"), "d": ("map_d", "map_d_tail")}
    wanted = {at[name]: first[tensor] for tensor, names in of.items() for name in names}
    assert seen.encoded == wanted
    seen.forget_maps()
    made.launch(**first)
    assert not seen.patched
    now = dict(first)
    for tensor, address in (("b", 0x7000), ("d", 0x8000), ("a", 0x9000)):
        now[tensor] = address
        made.launch(**now)
        assert seen.patched == {at[name]: address for name in of[tensor]}
        seen.patched.clear()
    assert not seen.encoded


def test_c_and_the_factors_are_those_of_each_call(seen: Seen) -> None:
    made = Planned(sized("promoted_scaled_read", 5, 4096, 7168), seen)
    _, params = made.launch(-1.5, 0.25, sfa=0x2000, sfb=0x4000, c=0x6000)
    assert (params.sfa, params.sfb) == (0x2000, 0x4000)
    epilogue = params.epilogue
    assert (epilogue.c, epilogue.c_stride) == (0x6000, 4104)
    assert (epilogue.alpha, epilogue.beta) == (-1.5, 0.25)
    assert (params.sfa_stride_m, params.sfb_stride_n) == (1, 1)
    # C in place: the address of D.
    _, params = made.launch(1.0, 1.0, c=0x5000, d=0x5000)
    epilogue = params.epilogue
    assert (epilogue.c, epilogue.alpha, epilogue.beta) == (0x5000, 1.0, 1.0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_has_a_plan(seen: Seen, variant: str) -> None:
    for m, n, k in ((5, 576, 7168), (300, 4096, 512)):
        problem = sized(variant, m, n, k)
        made = Planned(problem, seen)
        assert made.config.variant == problem.variant
        seen.forget_maps()
        geometry, params = made.launch(a=0x10000, b=0x20000, d=0x30000)
        assert geometry.gridDimX % made.config.cluster_size == 0
        assert geometry.sharedMemBytes == shared_storage(made.config).total
        at = dict(zip(MAPS[:3], made.offsets(*MAPS[:3]), strict=True))
        wanted = {at["map_a"]: 0x10000, at["map_b"]: 0x20000, at["map_d"]: 0x30000}
        assert wanted.items() <= seen.encoded.items()
        assert (params.m, params.n, params.k) == (m, n, k)
        assert params.d_stride == n
        scaled = problem.scale_a is not None
        assert (params.sfa != 0, params.sfb != 0) == (scaled, scaled)
        if problem.c_mode is CMode.READ:
            assert params.epilogue.c_stride == n + 8


@pytest.mark.parametrize("m, n, k", [(1, 4096, 7168), (5, 576, 7168), (256, 7168, 2048)])
@pytest.mark.parametrize("static_b", [False, True])
def test_a_launch_has_the_geometry_of_the_choice(
    seen: Seen, m: int, n: int, k: int, static_b: bool
) -> None:
    made = planned(seen, m, n, k, static_b)
    geometry, params = made.launch()
    assert geometry.blockDimX == made.config.tile.threads
    assert geometry.sharedMemBytes == shared_storage(made.config).total
    assert 0 < geometry.gridDimX <= 132 and geometry.gridDimX % made.config.cluster_size == 0
    assert (params.m, params.n, params.k) == (m, n, k)


# --- the grid -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fits, cap, n, clusters",
    [
        (32, 0, 4096, 32),  # what the device holds
        (99, 0, 4096, 33),  # the SMs there are
        (32, 50, 4096, 12),  # the SMs allowed
        (32, 0, 640, 10),  # the tiles there are
        (32, 3, 4096, 1),  # a cluster at least
    ],
)
def test_a_grid_is_whole_clusters_that_fit(
    seen: Seen, fits: int, cap: int, n: int, clusters: int
) -> None:
    seen.fits = fits
    with forced(SPLIT_K), override(num_sms=cap):
        geometry, params = planned(seen, 5, n, 7168).launch()
    assert geometry.gridDimX == 4 * clusters
    assert (params.scheduler.m_clusters, params.scheduler.n_clusters) == (1, n // 64)


@pytest.mark.parametrize("k", [128, 1024, 4096, 16384])
def test_b_is_loaded_early_only_where_it_is_said_to_be_static(seen: Seen, k: int) -> None:
    with forced(SPLIT_K):
        _, plain = planned(seen, 5, 4096, k).launch()
        geometry, static = planned(seen, 5, 4096, k, static_b=True).launch()
    assert plain.early_k_blocks == 0
    assert static.early_k_blocks == early_k_blocks(SPLIT_K, k, geometry.gridDimX, 132) > 0


def test_a_grid_of_few_sms_loads_nothing_early(seen: Seen) -> None:
    seen.fits = 16
    with forced(SPLIT_K):
        geometry, params = planned(seen, 5, 4096, 7168, static_b=True).launch()
    assert (geometry.gridDimX, params.early_k_blocks) == (64, 0)


# --- refusals -------------------------------------------------------------------------------------


def test_a_gpu_without_wgmma_is_refused_with_its_reason(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DEVICE, "refusal", "compute capability 8.0, and 9.0 is needed")
    with pytest.raises(UnsupportedError, match="compute capability 8.0"):
        planned(seen, 5, 4096, 7168)
    assert not seen.launches
