"""LaunchPlan: everything a warm call needs, made once per metadata of its tensors.

A warm call writes the addresses that changed into a parameter block and launches; it formats no
text, hashes no source and allocates nothing.
"""

from __future__ import annotations

import sys
import threading

from .. import settings
from ..config import from_index, select
from ..config.cost_model import early_blocks
from ..config.raster import most_clusters, raster
from ..config.smem_plan import plan as smem_plan
from ..config.tile import GemmConfig
from ..errors import CudaError, UnsupportedError
from ..jit import build, driver, key_of, tensor_map
from ..jit.driver import Function
from ..jit.launch import Launcher
from ..problem import GemmProblem
from . import gemm_sm90
from .gemm_sm90 import GemmParams, Operands


def load(config: GemmConfig, device_index: int, may_load: bool = True) -> Function:
    """Return the kernel of a configuration, compiled and loaded where it was not yet.

    may_load: False while a graph is being captured, when a module cannot be loaded; a kernel that
    is not there yet is then an UnsupportedError.
    """
    unit = gemm_sm90.translation_unit(config)
    if not may_load and not driver.is_loaded(key_of(unit), device_index):
        reason = f"kernel {config.name} is not loaded yet: call once, or warmup(), before capture"
        raise UnsupportedError("a first call inside a CUDA graph capture", [reason])
    return driver.load(build(unit), device_index)


class LaunchPlan:
    """One problem with one set of strides on one device, ready to launch at any addresses."""

    def __init__(
        self,
        problem: GemmProblem,
        operands: Operands,
        device_index: int,
        may_load: bool = True,
    ):
        """Choose the configuration, compile or find its kernel, and prepare the launch.

        Raises CompileError or CudaError, or as load() does.
        """
        current = settings.current()
        device = from_index(device_index)
        num_sms = device.budget(current.num_sms)
        self.config = select(problem, device, num_sms)
        self.device_index = device_index
        if settings.flag("DG_PRINT_CONFIGS"):
            print(f"deep_gemm: {problem.describe()}: {self.config.describe()}", file=sys.stderr)
        function = load(self.config, device_index, may_load)
        self._lock = threading.Lock()
        self._params, self._base = tensor_map.aligned(GemmParams, gemm_sm90.PARAMS_BYTES)
        resident = _resident_clusters(function, self.config, num_sms)
        walk = raster(problem, self.config, resident)
        grid = min(resident, most_clusters(problem, self.config)) * self.config.cluster
        early = 0
        if problem.static_b and problem.grouping is None:
            early = early_blocks(self.config, operands.k, grid, device.sm_count)
        gemm_sm90.fill_params(self._params, self.config, operands, walk, early)
        if problem.grouping is not None:
            gemm_sm90.fill_groups(self._params, problem.grouping, problem.m, problem.addend)
        self.described = described = gemm_sm90.tensor_maps(self.config, operands)
        # Of A, B and D each: what describes it, and where in the parameter.
        self._maps = [
            [(described[name], self._base + getattr(GemmParams, name).offset) for name in names]
            for names in gemm_sm90.maps_of_operands(self.config)
        ]
        self._addresses: tuple[int, int, int] | None = None
        self._launcher = Launcher(
            function,
            grid,
            self.config.cluster,
            self.config.tile.threads,
            smem_plan(self.config).total,
            current.pdl,
            self._base,
        )

    def launch(
        self,
        operands: tuple[int, int, int],
        others: tuple[int, int, int],
        factors: tuple[float, float],
        stream: int,
        groups: tuple[int, int] | None = None,
    ) -> None:
        """Launch on a stream handle with the tensors' device addresses.

        operands: of A, B and D, 16-byte aligned, their strides those the plan was made for.
        others: of the scales of A and of B and of C; 0 where the form has none.
        factors: alpha and beta.
        groups: of what says which rows belong to which, and of groups' own maps of A and B; None
            where nothing does.
        """
        with self._lock:
            params = self._params
            params.sfa, params.sfb, params.c = others
            if groups is not None:
                params.d = operands[2]
                params.groups.of, params.group_maps = groups
            params.alpha, params.beta = factors
            try:
                self._point_at(operands)
                self._launcher.launch(stream)
            except CudaError as error:
                driver.make_current_after(error, self.device_index)
                self._point_at(operands)
                self._launcher.launch(stream)

    def _point_at(self, wanted: tuple[int, int, int]) -> None:
        last = self._addresses
        if last is None:
            for maps, address in zip(self._maps, wanted, strict=True):
                for described, place in maps:
                    described.encode(address, place)
        elif last != wanted:
            for maps, address, before in zip(self._maps, wanted, last, strict=True):
                if address != before:
                    for _, place in maps:
                        tensor_map.patch(place, address)
        self._addresses = wanted


def _resident_clusters(function: Function, config: GemmConfig, num_sms: int) -> int:
    """Return how many clusters a persistent grid has: what fits, within the SM budget."""
    fits = driver.max_active_clusters(
        function, config.cluster, config.tile.threads, smem_plan(config).total
    )
    return max(1, min(fits, num_sms // config.cluster))
