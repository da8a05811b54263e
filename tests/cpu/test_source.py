"""The source of a kernel: what the host renders, and that NVRTC refuses what differs."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from deep_gemm.errors import CompileError
from deep_gemm.jit import nvrtc
from deep_gemm.jit.headers import headers_for
from deep_gemm.jit.source import CudaName, MmaShape, params_bytes, render
from deep_gemm.kernels import cast_geometry, gemm_sm90, group_tensor_maps, transpose
from deep_gemm.kernels.spec import KernelSpec

from .config_kit import VARIANTS, config_of

BF16_CAST = ("token", 128, torch.bfloat16, torch.float8_e4m3fn, True)
SPECS: dict[str, KernelSpec] = {
    "gemm": gemm_sm90.spec(config_of(64, 64, variant=VARIANTS["promoted_scaled_read"])),
    "cast": cast_geometry.spec(*BF16_CAST),
    "transpose": transpose.spec(True),
    "group_tensor_maps": group_tensor_maps.spec(True, 1),
}
each_kernel = pytest.mark.parametrize("kernel", SPECS)
ASSERT = re.compile(r"static_assert\(DG_OFFSETOF\(Params, ([\w.]+)\) == (\d+)")


class Pair(ctypes.Structure):
    """A member with members."""

    _fields_ = [("low", ctypes.c_uint32), ("high", ctypes.c_uint32)]


class Params(ctypes.Structure):
    """A parameter with a member of each kind, and a hole."""

    ALIGNMENT = 64
    _fields_ = [
        ("count", ctypes.c_uint32),
        ("x", ctypes.c_uint64),
        ("pair", Pair),
        ("factor", ctypes.c_float),
    ]


def rendered(**rest: Any) -> str:
    described: dict[str, Any] = {
        "header": "deep_gemm/k.cuh",
        "function": "body",
        "entry": "k_1",
        "constants": {},
        "params": Params,
        "params_type": "Params",
        "launch_bounds": (96, 3),
    }
    return render(**described | rest)


# --- text -----------------------------------------------------------------------------------------


def test_the_entry_point_calls_the_function_with_its_config() -> None:
    source = rendered()
    assert source.startswith('#include "deep_gemm/k.cuh"\n')
    assert (
        "__launch_bounds__(96, 3)\nk_1(const __grid_constant__ deep_gemm::Params params)" in source
    )
    assert "deep_gemm::body<deep_gemm::Config>(params);" in source


def test_constants_are_members_by_kind_in_their_order() -> None:
    mma = MmaShape(64, "e4m3", "e5m2")
    constants = {
        "kCount": 3,
        "Out": CudaName("float", is_type=True),
        "kMode": CudaName("Mode::kAdd"),
        "Mma": mma,
    }
    source = rendered(constants=constants)
    assert (
        "struct Config {\n"
        "    static constexpr uint32_t kCount = 3;\n"
        "    using Out = float;\n"
        "    static constexpr auto kMode = Mode::kAdd;\n"
        "    using Mma = Wgmma64x64x32_e4m3_e5m2;\n"
        "};" in source
    )
    assert source.index("struct Wgmma64x64x32_e4m3_e5m2 {") < source.index("struct Config {")


def test_an_mma_that_two_members_name_is_rendered_once() -> None:
    mma = MmaShape(32, "bf16", "bf16")
    source = rendered(constants={"Mma": mma, "ScaleMma": replace(mma)})
    assert source.count("struct Wgmma64x32x16_bf16_bf16 {") == 1


@pytest.mark.parametrize(
    "mma, accum, instruction, registers, modifiers",
    [
        (MmaShape(16, "e4m3", "e5m2"), "float", "m64n16k32.f32.e4m3.e5m2", 8, ", 1, 1"),
        (MmaShape(24, "s8", "s8"), "int", "m64n24k32.s32.s8.s8", 12, ""),
        (MmaShape(8, "bf16", "bf16"), "float", "m64n8k16.f32.bf16.bf16", 4, ", 1, 1, 0, 0"),
        (MmaShape(8, "f16", "f16", True), "float", "m64n8k16.f32.f16.f16", 4, ", 1, 1, 1, 0"),
        (
            MmaShape(8, "f16", "f16", b_transposed=True),
            "float",
            "m64n8k16.f32.f16.f16",
            4,
            ", 1, 1, 0, 1",
        ),
    ],
)
def test_an_mma_is_one_wgmma_of_its_types(
    mma: MmaShape, accum: str, instruction: str, registers: int, modifiers: str
) -> None:
    source = rendered(constants={"Mma": mma})
    assert f"using Accum = {accum};" in source
    operands = ", ".join(f"%{i}" for i in range(registers))
    ends = f"%{registers}, %{registers + 1}, p{modifiers};"
    assert f'"wgmma.mma_async.sync.aligned.{instruction} {{{operands}}}, {ends}\\n"' in source


def test_structs_have_their_members_and_may_be_empty() -> None:
    fields = (("alpha", ctypes.c_float), ("c", ctypes.c_void_p), ("c_stride", ctypes.c_int64))
    source = rendered(structs={"EpilogueParams": fields, "None": ()})
    assert (
        "struct EpilogueParams {\n    float alpha;\n    const void* c;\n    int64_t c_stride;\n};"
        in source
    )
    assert "struct None {};" in source
    with pytest.raises(KeyError):  # a type that device code has no name for here
        rendered(structs={"S": (("x", ctypes.c_double),)})


def test_offsets_are_those_of_the_hosts_struct_and_of_members_of_members() -> None:
    source = rendered()
    assert dict(ASSERT.findall(source)) == {
        "count": "0",
        "x": "8",
        "pair": "16",
        "pair.low": "16",
        "pair.high": "20",
        "factor": "24",
    }
    assert params_bytes(Params) == 64 and "static_assert(sizeof(Params) == 64," in source
    assert params_bytes(Pair) == 8


# --- the kernels ----------------------------------------------------------------------------------


def members(struct: type[ctypes.Structure], before: str = "") -> Iterator[str]:
    """Yield each member of a struct, dotted where it is a member's."""
    for name, kind in struct._fields_:  # type: ignore[misc]
        yield before + name
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure):
            yield from members(kind, f"{before}{name}.")


@each_kernel
def test_every_member_of_the_parameter_is_asserted(kernel: str) -> None:
    found = SPECS[kernel]
    assert [name for name, _ in ASSERT.findall(found.unit.source)] == list(members(found.params))


@pytest.mark.parametrize("variant", VARIANTS)
def test_device_code_sees_enumerators_by_name(variant: str) -> None:
    """Numbers could come to mean another enumerator; a name that is not there does not compile."""
    constants = dict(gemm_sm90.spec(config_of(64, 64, variant=VARIANTS[variant])).constants)
    for name, enum in (
        ("kMainloop", "Mainloop"),
        ("kGroupKind", "GroupKind"),
        ("kStoreMode", "StoreMode"),
    ):
        value = constants[name]
        assert isinstance(value, CudaName) and value.cuda.startswith(f"{enum}::k")


def compiled(kernel: KernelSpec) -> None:
    unit = kernel.unit
    nvrtc.compile_cubin(
        unit.source, headers=headers_for(unit.source), options=unit.options, name=unit.name
    )


def exchanged(struct: type[ctypes.Structure], path: str) -> type[ctypes.Structure]:
    """Return a struct in which a member has changed places with the next one, of equal size."""
    first, _, rest = path.partition(".")
    fields = list(struct._fields_)  # type: ignore[misc]
    at = [name for name, *_ in fields].index(first)
    if rest:
        fields[at] = (first, exchanged(fields[at][1], rest))
    else:
        fields[at], fields[at + 1] = fields[at + 1], fields[at]
        assert ctypes.sizeof(fields[at][1]) == ctypes.sizeof(fields[at + 1][1])
    alignment = getattr(struct, "ALIGNMENT", 1)
    return type(struct.__name__, (ctypes.Structure,), {"_fields_": fields, "ALIGNMENT": alignment})


@pytest.mark.parametrize(
    "kernel, member",
    [
        ("gemm", "map_a"),
        ("gemm", "sfa"),
        ("gemm", "sfb_stride_n"),
        ("gemm", "m"),
        ("gemm", "scheduler.m_clusters"),
        ("gemm", "scheduler.residue.head"),
        ("gemm", "groups.num_groups"),
        ("cast", "pitch_x"),
        ("cast", "gran_rows"),
        ("cast", "per_row.multiplier"),
        ("transpose", "rows"),
        ("group_tensor_maps", "a"),
    ],
)
def test_members_in_another_order_do_not_compile(kernel: str, member: str) -> None:
    found = SPECS[kernel]
    other = replace(found, params=exchanged(found.params, member))
    assert ctypes.sizeof(other.params) == ctypes.sizeof(found.params)
    with pytest.raises(CompileError, match="the host has another parameter"):
        compiled(other)


@each_kernel
def test_members_in_the_hosts_order_compile(kernel: str) -> None:
    compiled(SPECS[kernel])


def test_a_longer_parameter_does_not_compile() -> None:
    class Longer(transpose.TransposeParams):
        _fields_ = [("more", ctypes.c_uint64)]

    with pytest.raises(CompileError, match=r"more|another parameter"):
        compiled(replace(SPECS["transpose"], params=Longer))


def test_an_enumerator_that_device_code_does_not_have_does_not_compile() -> None:
    constants = dict(SPECS["gemm"].constants) | {"kMainloop": CudaName("Mainloop::kScaled2d2d")}
    with pytest.raises(CompileError, match="kScaled2d2d"):
        compiled(replace(SPECS["gemm"], constants=tuple(constants.items())))
