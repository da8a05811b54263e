"""Time the casts and the transpose beside torch's copy_ of as many bytes.

    python3 benchmarks/casts.py [--json PATH]

Needs a Hopper GPU. For bf16 matrices, cast to e4m3, it prints microseconds per call (CUDA-graph
replay over rotating inputs, median), GB/s of the bytes that must move (x read once, data and scales
written once), and that rate as a share of copy_'s, whose reads and writes are as many bytes in all.
Where one scale is for a whole tensor or column x may be read twice: a second rate and share, beside
those, count both. copy_ is timed once for each number of bytes, the median of several timings.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch

from deep_gemm import quant
from deep_gemm.bench.timing import WARM_MS, set_count, time_calls
from deep_gemm.kernels.transpose import transposed

Shape = tuple[int, int]
Call = Callable[[torch.Tensor], object]

SHAPES: tuple[Shape, ...] = ((4096, 7168), (8192, 4096), (1024, 7168))
COPY_TIMINGS = 5
WANTED = 0.85  # of copy_
RECIPES = {
    "1x128": quant.ROW_1X128,
    "128x1": quant.by_granularity(128, 1),
    "128x128": quant.BLOCK_128X128,
    "per row": quant.PER_CHANNEL,
    "per tensor": quant.PER_TENSOR,
    "per column": quant.PER_COLUMN,
}
TWICE = ("per tensor", "per column")


@dataclass(frozen=True)
class Measured:
    """One kernel on one shape.

    moved: bytes that must move. again: bytes of x, where they are read a second time.
    copy_us: of copy_ for `moved` bytes.
    """

    name: str
    rows: int
    columns: int
    us: float
    copy_us: float
    moved: int
    again: int = 0

    @property
    def gbs(self) -> float:
        """GB/s of the bytes that must move."""
        return self.moved / self.us / 1e3

    @property
    def gbs_both(self) -> float:
        """GB/s with the second read."""
        return (self.moved + self.again) / self.us / 1e3

    @property
    def share(self) -> float:
        """Its rate over that of copy_."""
        return self.copy_us / self.us

    @property
    def share_both(self) -> float:
        """Its rate with the second read over that of copy_."""
        return self.share * self.gbs_both / self.gbs


def moved_bytes(recipe: quant.ScaleRecipe, rows: int, columns: int) -> int:
    """Return the bytes of bf16 x, of 8-bit data and of scales."""
    down, across = recipe.shape(rows, columns)
    return 3 * rows * columns + 4 * down * across


def cast_calls() -> Iterator[tuple[str, Call]]:
    """Yield each cast by name; 1x128 with scales MN-major, too, and INT8."""

    def with_recipe(recipe: quant.ScaleRecipe, dtype: torch.dtype, layout: str) -> Call:
        return lambda x: quant.cast.cast_blocks(x, recipe, False, dtype, "saturate", layout)

    for name, recipe in RECIPES.items():
        yield name, with_recipe(recipe, torch.float8_e4m3fn, "row_major")
    yield "1x128 mn", with_recipe(quant.ROW_1X128, torch.float8_e4m3fn, "mn_major")
    yield "per row int8", with_recipe(quant.PER_CHANNEL, torch.int8, "row_major")


def recipe_of(name: str) -> quant.ScaleRecipe:
    """Return the recipe that a cast's name begins with."""
    return RECIPES[max((key for key in RECIPES if name.startswith(key)), key=len)]


def time_over(inputs: list[torch.Tensor], call: Call) -> float:
    """Return microseconds of a call that cycles through inputs."""

    def bound(x: torch.Tensor) -> Callable[[], object]:
        return lambda: call(x)

    return time_calls([bound(x) for x in inputs], warm_ms=WARM_MS)


@cache
def time_copy(total: int) -> float:
    """Return microseconds of copy_ that reads and writes `total` bytes in all."""
    half = total // 2
    count = set_count(total) + 1

    def bytes_of(seed: int) -> torch.Tensor:
        rng = torch.Generator("cuda").manual_seed(seed)
        return torch.randint(0, 256, (half,), dtype=torch.uint8, device="cuda", generator=rng)

    def copying(target: torch.Tensor, source: torch.Tensor) -> Callable[[], object]:
        return lambda: target.copy_(source)

    calls = [copying(bytes_of(2 * i), bytes_of(2 * i + 1)) for i in range(count)]
    return statistics.median(time_calls(calls, warm_ms=WARM_MS) for _ in range(COPY_TIMINGS))


def measure(rows: int, columns: int) -> Iterator[Measured]:
    """Time every cast, and the transpose, of one shape."""
    rng = torch.Generator("cuda").manual_seed(rows)
    size = rows * columns
    copy_rate = 3 * size / time_copy(3 * size)  # scales are next to nothing
    inputs = [
        torch.randn(rows, columns, device="cuda", generator=rng).to(torch.bfloat16)
        for _ in range(set_count(3 * size))
    ]
    for name, call in cast_calls():
        moved = moved_bytes(recipe_of(name), rows, columns)
        again = 2 * size if name in TWICE else 0
        us = time_over(inputs, call)
        yield Measured(name, rows, columns, us, moved / copy_rate, moved, again)
    stored = [x.view(torch.uint8)[:, :columns].contiguous() for x in inputs]
    us = time_over(stored, lambda x: transposed(x.t()))
    yield Measured("transpose", rows, columns, us, time_copy(2 * size), 2 * size)


def line(found: Measured) -> str:
    """Return one measurement as text."""
    text = f"{f'{found.rows} x {found.columns}':12} {found.name:13} {found.us:8.2f} us"
    text += f" {found.gbs:6.0f} GB/s  {found.share:4.0%} of copy_ ({found.copy_us:.2f} us)"
    if found.share < WANTED:
        text += f", under {WANTED:.0%}"
    if found.again:
        text += f"; {found.gbs_both:.0f} GB/s, {found.share_both:.0%}, with the second read"
    return text


def main() -> None:
    """Measure and print every shape."""
    parser = argparse.ArgumentParser(description="Time the casts and the transpose.")
    parser.add_argument("--json", type=Path, help="write the measurements there, too")
    path = parser.parse_args().json
    found = []
    for shape in SHAPES:
        for one in measure(*shape):
            found.append(one)
            print(line(one), flush=True)
    if path:
        rows = [{**asdict(one), "gbs": one.gbs, "share": one.share} for one in found]
        path.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
