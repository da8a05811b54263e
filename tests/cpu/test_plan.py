"""Launch plans against a fake driver: the grid and the parameters that a launch hands over."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from deep_gemm import override
from deep_gemm.config import GemmConfig, StoreConfig, TileConfig, forced, select
from deep_gemm.config.cost_model import early_blocks
from deep_gemm.config.shared_storage import shared_storage as smem_plan
from deep_gemm.jit import driver, launch
from deep_gemm.kernels import plan
from deep_gemm.kernels.gemm_sm90 import GemmParams
from deep_gemm.problem import GemmProblem

from .config_kit import FORMS, H200, sized
from .fake_driver import FakeDriver, forget_addresses

PTR, INT = ctypes.c_void_p, ctypes.c_int
LAUNCH = ctypes.CFUNCTYPE(INT, PTR, PTR, PTR, PTR)
ENCODE = ctypes.CFUNCTYPE(
    INT, PTR, INT, ctypes.c_uint32, PTR, PTR, PTR, PTR, PTR, INT, INT, INT, INT
)
REPLACE = ctypes.CFUNCTYPE(INT, PTR, PTR)
SPLIT = GemmConfig(TileConfig(64, 8, 1), 1, 1, 12, StoreConfig(64, 8, 1), 4, swap_ab=True)
TWO_PARTS = GemmConfig(TileConfig(128, 136, 2), 1, 1, 5, StoreConfig(64, 136, 1))


class Seen:
    """What the fake driver was told: launches, and the addresses that maps were given."""

    def __init__(self) -> None:
        self.launches: list[tuple[launch.LaunchConfig, GemmParams]] = []
        self.encoded: dict[int, int] = {}  # by place in the parameter block
        self.patched: dict[int, int] = {}
        self.fits = 66  # clusters the device holds at once
        self.base = 0


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    fake = FakeDriver(monkeypatch)
    record = Seen()
    places: list[tuple[dict[int, int], int, int]] = []

    def launch_kernel(config: int, handle: int, params: int, extra: int | None) -> int:
        base = ctypes.c_void_p.from_address(params).value
        assert base is not None and base % 64 == 0
        copied = GemmParams.from_buffer_copy(ctypes.string_at(base, ctypes.sizeof(GemmParams)))
        geometry = launch.LaunchConfig.from_buffer_copy(
            ctypes.string_at(config, ctypes.sizeof(launch.LaunchConfig))
        )
        record.launches.append((geometry, copied))
        for kept, place, address in places:
            kept[place - base] = address
        places.clear()
        return 0

    def encode(place: int, *arguments: Any) -> int:
        places.append((record.encoded, place, arguments[2]))
        return 0

    def patch(place: int, address: int) -> int:
        places.append((record.patched, place, address))
        return 0

    fake.serve("cuLaunchKernelEx", LAUNCH, launch_kernel)
    fake.serve("cuTensorMapEncodeTiled", ENCODE, encode)
    fake.serve("cuTensorMapReplaceAddress", REPLACE, patch)
    function = driver.Function(0x1234, "gemm", 0, 168, 0, 0, H200.smem_bytes)
    monkeypatch.setattr(plan, "load", lambda config, index, may_load=True: function)
    monkeypatch.setattr(plan, "from_index", lambda index: H200)
    monkeypatch.setattr(driver, "max_active_clusters", lambda *args: record.fits)
    yield record
    forget_addresses()


def planned(m: int, n: int, k: int, static_b: bool = False) -> plan.LaunchPlan:
    problem = GemmProblem.block_scaled(m, n, k, static_b)
    operands = GemmLayout(m, n, k, k, k, n, (1, m, 0), (1, 1, 0))
    return plan.LaunchPlan(problem, operands, 0)


def launched(made: plan.LaunchPlan, seen: Seen) -> tuple[launch.LaunchConfig, GemmParams]:
    launch_at(made)
    return seen.launches[-1]


def launch_at(
    made: plan.LaunchPlan,
    a: int = 0x1000,
    b: int = 0x3000,
    d: int = 0x5000,
    others: tuple[int, int, int] = (0x2000, 0x4000, 0),
    factors: tuple[float, float] = (1.0, 1.0),
) -> None:
    made.launch((a, b, d), others, factors, 0)


def test_maps_are_encoded_once_and_then_patched_where_an_address_changed(seen: Seen) -> None:
    made = planned(5, 4096, 7168)
    _, params = launched(made, seen)
    assert (params.sfa, params.sfb) == (0x2000, 0x4000)
    at = [getattr(GemmParams, name).offset for name in ("map_a", "map_b", "map_d")]
    assert seen.encoded == dict(zip(at, (0x1000, 0x3000, 0x5000), strict=True))
    seen.encoded.clear()
    launch_at(made, d=0x6000, others=(0x2010, 0x4010, 0))
    assert not seen.encoded and seen.patched == {at[2]: 0x6000}
    _, params = seen.launches[-1]
    assert (params.sfa, params.sfb) == (0x2010, 0x4010)


def test_both_maps_of_b_and_of_d_follow_their_address(seen: Seen) -> None:
    with forced(TWO_PARTS):
        made = planned(256, 4096, 7168)
    launched(made, seen)
    fields = ("map_a", "map_b", "map_extra", "map_d", "map_rest")
    at = {name: getattr(GemmParams, name).offset for name in fields}
    addresses = (0x1000, 0x3000, 0x3000, 0x5000, 0x5000)
    assert seen.encoded == dict(zip(at.values(), addresses, strict=True))
    seen.encoded.clear()
    launch_at(made)
    assert not seen.patched
    for a, b, d, names in (
        (0x1000, 0x7000, 0x5000, ("map_b", "map_extra")),
        (0x1000, 0x7000, 0x8000, ("map_d", "map_rest")),
        (0x9000, 0x7000, 0x8000, ("map_a",)),
    ):
        launch_at(made, a, b, d)
        new = {"map_a": a, "map_b": b, "map_d": d}[names[0]]
        assert seen.patched == {at[name]: new for name in names}
        seen.patched.clear()
    assert not seen.encoded


def test_c_and_the_factors_are_those_of_each_launch(seen: Seen) -> None:
    problem = sized("unit_scaled_read", 5, 4096, 7168)
    operands = GemmLayout(5, 4096, 7168, 7168, 7168, 4096, (1, 0, 0), (2, 0, 0), 4104)
    made = plan.LaunchPlan(problem, operands, 0)
    launch_at(made, others=(0x2000, 0x4000, 0x6000), factors=(-1.5, 0.25))
    _, params = seen.launches[-1]
    assert (params.sfa, params.sfb, params.c, params.c_stride) == (0x2000, 0x4000, 0x6000, 4104)
    assert (params.alpha, params.beta) == (-1.5, 0.25)
    assert (params.sfa_stride_m, params.sfb_stride_n) == (1, 2)
    # C in place: the address of D.
    launch_at(made, others=(0x2000, 0x4000, 0x5000), factors=(1.0, 1.0))
    _, params = seen.launches[-1]
    assert (params.c, params.alpha, params.beta) == (0x5000, 1.0, 1.0)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_a_plan(seen: Seen, form: str) -> None:
    for m, n, k in ((5, 576, 7168), (300, 4096, 512)):
        problem = sized(form, m, n, k)
        made = plan.LaunchPlan(problem, GemmLayout(m, n, k, k, k, n, (1, m, 0), (1, 1, 0), n), 0)
        assert made.config == select(problem, H200) and made.config.variant == problem.variant
        geometry, params = launched(made, seen)
        assert geometry.gridDimX % made.config.cluster_size == 0
        assert geometry.sharedMemBytes == smem_plan(made.config).total
        maps = {getattr(GemmParams, name).offset for name in ("map_a", "map_b", "map_d")}
        assert maps <= set(seen.encoded)
        assert (params.m, params.n, params.k) == (m, n, k)


@pytest.mark.parametrize("m, n, k", [(1, 4096, 7168), (5, 576, 7168), (256, 7168, 2048)])
@pytest.mark.parametrize("static_b", [False, True])
def test_a_launch_has_the_geometry_of_the_choice(
    seen: Seen, m: int, n: int, k: int, static_b: bool
) -> None:
    made = planned(m, n, k, static_b)
    assert made.config == select(GemmProblem.block_scaled(m, n, k, static_b), H200)
    geometry, params = launched(made, seen)
    assert geometry.blockDimX == made.config.tile.threads
    assert geometry.sharedMemBytes == smem_plan(made.config).total
    assert 0 < geometry.gridDimX <= 132 and geometry.gridDimX % made.config.cluster_size == 0
    assert (params.m, params.n, params.k) == (m, n, k)


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
    with forced(SPLIT), override(num_sms=cap):
        geometry, params = launched(planned(5, n, 7168), seen)
    assert geometry.gridDimX == 4 * clusters
    assert (params.tiles.clusters_m, params.tiles.clusters_n) == (n // 64, 1)


@pytest.mark.parametrize("k", [128, 1024, 4096, 16384])
def test_b_is_read_ahead_only_where_it_is_said_to_be_static(seen: Seen, k: int) -> None:
    with forced(SPLIT):
        _, plain = launched(planned(5, 4096, k), seen)
        geometry, static = launched(planned(5, 4096, k, static_b=True), seen)
    assert plain.early_blocks == 0
    assert static.early_blocks == early_blocks(SPLIT, k, geometry.gridDimX, 132) > 0


def test_a_grid_of_few_sms_reads_nothing_ahead(seen: Seen) -> None:
    seen.fits = 16
    with forced(SPLIT):
        geometry, params = launched(planned(5, 4096, 7168, static_b=True), seen)
    assert (geometry.gridDimX, params.early_blocks) == (64, 0)
