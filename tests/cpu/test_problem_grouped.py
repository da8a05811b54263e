"""Grouped problems from tensors: what they become, every refusal, plans and settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, UnsupportedError, dispatch, settings
from deep_gemm.dispatch import gemm
from deep_gemm.dtypes import BF16, E4M3, FP32
from deep_gemm.grouped import bucketed, group_options
from deep_gemm.problem import CMode, GemmProblem, Grouping, GroupKind, Major, ScaleChoice
from deep_gemm.problem.epilogue import EpilogueOp
from deep_gemm.problem.from_tensors import check_tma, problem_of
from deep_gemm.problem.grouped import SHAPES, layout_name
from deep_gemm.problem.request import Options, Tensors
from deep_gemm.problem.scale_recipe import BLOCK_128X128, PER_TENSOR, ROW_1X128
from deep_gemm.quant.scaled_tensor import ScaledTensor

from .dense_kit import CudaLike

G, M, N, K = 3, 128, 136, 208
KB, NB = 2, 2
FP8 = torch.float8_e4m3fn


def tensors(kind: str) -> dict[str, Any]:
    """Return arguments of a good grouped_matmul(): data, scales, D of sevens, and the layout."""
    lead = (G,) if kind in ("counts", "batched") else ()
    found: dict[str, Any] = {
        "a": torch.zeros(*lead, M, K).to(FP8),
        "sfa": torch.ones(*lead, M, KB),
        "b": torch.zeros(G, N, K).to(FP8),
        "sfb": torch.ones(G, NB, KB),
        "out": torch.full((*lead, M, N), 7.0).bfloat16(),
    }
    if kind != "batched":
        found[kind] = torch.zeros(M if kind == "labels" else G, dtype=torch.int32)
    return found


def call(found: dict[str, Any], **rest: Any) -> torch.Tensor:
    found = found | rest
    a, b = (found.pop("a"), found.pop("sfa")), (found.pop("b"), found.pop("sfb"))
    a, b = (x[0] if x[1] is None else x for x in (a, b))
    return deep_gemm.grouped_matmul(a, b, **found)


# --- problems -----------------------------------------------------------------------------------


KINDS = (GroupKind.LABELS, GroupKind.OFFSETS, GroupKind.MASKED, GroupKind.BATCHED)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tensors_are_a_problem_with_its_grouping(kind):
    name = "counts" if kind is GroupKind.MASKED else str(kind)
    found = tensors(name)
    layout = found.get(name)
    grouping = Grouping(kind, G, 128 if kind is GroupKind.LABELS else 1)
    t = Tensors(found["a"], found["sfa"], found["b"], found["sfb"], None, found["out"], layout)
    problem = problem_of(t, Options(static_b=True, grouping=grouping), 1.0, 1.0)
    assert problem == GemmProblem(M, N, K, static_b=True, grouping=grouping)
    assert problem.variant.group_kind is kind


def test_every_kind_has_shapes_and_a_name():
    assert set(SHAPES) == set(GroupKind) - {GroupKind.NONE}
    assert layout_name(None) == "groups"
    for kind, shapes in SHAPES.items():
        assert layout_name(Grouping(kind, G)) == shapes.name
        assert (len(shapes.a) == 3) == kind.is_stacked == Grouping(kind, G).is_stacked


def test_b_of_either_major():
    found = tensors("batched")
    a, b = found["a"].bfloat16(), found["b"].bfloat16()
    mn_major = b.transpose(1, 2).contiguous().transpose(1, 2)
    options = Options(static_b=True, grouping=Grouping(GroupKind.BATCHED, G))
    problem = problem_of(Tensors(a, None, mn_major, None, None, found["out"]), options, 1.0, 1.0)
    assert problem.b_major is Major.MN and problem.static_b and not problem.transposed
    mn_major = found["b"].transpose(1, 2).contiguous().transpose(1, 2)
    t = Tensors(found["a"], None, mn_major, None, None, found["out"])
    problem = problem_of(t, options, 1.0, 1.0)
    assert problem.transposed == ("b",) and not problem.static_b, "a kernel in flight writes B"


@pytest.mark.parametrize("dtype", [FP8, torch.bfloat16])
def test_groups_along_k(dtype):
    grouping, d = Grouping(GroupKind.ALONG_K, G), torch.zeros(G, 8, 16)
    extents = torch.zeros(G, dtype=torch.int32)
    if dtype == FP8:
        a, b = torch.zeros(8, K).to(FP8), torch.zeros(16, K).to(FP8)
        scales = torch.ones(8, 5), torch.ones(16, 7)
        major, recipe, row = Major.K, ROW_1X128, E4M3
    else:
        a, b = torch.zeros(K, 8).to(dtype).t(), torch.zeros(K, 24)[:, :16].to(dtype).t()
        scales, major, recipe, row = (None, None), Major.MN, None, BF16
    t = Tensors(a, scales[0], b, scales[1], d, d, extents)
    problem = problem_of(t, Options(grouping=grouping), 1.0, 1.0)
    assert problem == GemmProblem(
        8, 16, K, row, row, FP32, recipe, recipe,
        a_major=major, b_major=major, c_mode=CMode.REDUCE, grouping=grouping,
    )  # fmt: skip


# --- refusals of groups of rows -----------------------------------------------------------------

STRIDED = torch.zeros(2 * M, dtype=torch.int32)[::2]
BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "labels int64": ("labels", {"labels": torch.zeros(M).long()}, r"labels.*: dtype .*int32"),
    "labels [G]": ("labels", {"labels": torch.zeros(G).int()}, r"labels.*: shape .*\(128,\)"),
    "labels strided": ("labels", {"labels": STRIDED}, "labels.*: stride must be 1, got 2"),
    "labels list": ("labels", {"labels": [0] * M}, "labels.*: type must be torch.Tensor, got list"),
    "labels alignment": ("labels", {"alignment": 32}, "alignment: value must be 64 or 128 with la"),
    "labels no alignment": ("labels", {"alignment": 1}, "set_mk_alignment.*or offsets"),
    "offsets [M]": ("offsets", {"offsets": torch.zeros(M).int()}, r"offsets.*: shape .*\(3,\)"),
    "offsets alignment": ("offsets", {"alignment": 0}, "alignment: value must be an int >= 1"),
    "alignment bool": ("offsets", {"alignment": True}, "alignment: value must be an int >= 1"),
    "counts float": ("counts", {"counts": torch.zeros(G)}, r"counts \(masked_m\): dtype"),
    "counts device": (
        "counts",
        {"counts": torch.zeros(G, dtype=torch.int32, device="meta")},
        r"counts \(masked_m\): device must be cpu, got meta; move it",
    ),
    "zeros of labels": ("labels", {"zero_padding": True}, "zero_padding: value must be False"),
    "two kinds": ("labels", {"counts": torch.zeros(G).int()}, "labels, offsets, counts: presence"),
    "expected": ("counts", {"expected_m": 1.5}, "expected_m: type must be int, got float"),
    "expected tensor": ("counts", {"expected_m": torch.tensor(1)}, "expected_m: type must be int"),
    "layout": ("counts", {"layout": "tn"}, 'layout: value must be "nt" or "nn"'),
    "a 2-D": ("counts", {"a": torch.zeros(M, K).to(FP8)}, "a: number of dimensions must be 3"),
    "a 3-D": ("labels", {"a": torch.zeros(1, M, K).to(FP8)}, "a: number of dimensions must be 2"),
    "a 1-D": ("labels", {"a": torch.zeros(K).to(FP8)}, "a: shape must be"),
    "b 2-D": ("labels", {"b": torch.zeros(N, K).to(FP8)}, "b: shape must be"),
    "b no tensor": ("labels", {"b": None}, "b: type must be torch.Tensor, got NoneType"),
    "K differs": ("labels", {"b": torch.zeros(G, N, 192).to(FP8)}, r"b: shape .*\(3, 136, 208\)"),
    "groups differ": ("counts", {"a": torch.zeros(4, M, K).to(FP8)}, r"a: shape .*\(3, 128, 208\)"),
    "d shape": ("counts", {"out": torch.zeros(G, M, 8).bfloat16()}, r"d: shape .*\(3, 128, 136\)"),
    "d 3-D": ("labels", {"out": torch.zeros(1, M, N).bfloat16()}, "d: number of dimensions"),
    "d dtype": ("labels", {"out": torch.zeros(M, N).double()}, "d: dtype must be one of"),
    "out dtype": ("labels", {"out_dtype": torch.float32}, "out: dtype must be torch.float32"),
    "d int32": ("labels", {"out": torch.zeros(M, N).int()}, "d: dtype must be one of"),
    "d strided": (
        "labels",
        {"out": torch.zeros(M, 2 * N).bfloat16()[:, ::2]},
        "d: stride of the last dimension",
    ),
    "d groups overlap": (
        "counts",
        {"out": torch.zeros(M, N).bfloat16().expand(G, M, N)},
        "d: strides must be those of separate elements.*may not overlap",
    ),
    "a groups overlap": (
        "counts",
        {"a": torch.zeros(G * M * K).to(FP8).as_strided((G, M, K), (K, K, 1))},
        "a: strides must be those of separate elements",
    ),
    "b groups overlap": ("labels", {"b": torch.zeros(N, K).to(FP8).expand(G, N, K)}, "b: strides"),
    "a column-major": (
        "labels",
        {"a": torch.zeros(K, M).to(FP8).t()},
        "a: stride of the last dimension must be 1",
    ),
    "b strided": (
        "labels",
        {"b": torch.zeros(G, N, 2 * K).to(FP8)[:, :, ::2]},
        "b: stride of the last dimension",
    ),
    "types": ("labels", {"b": torch.zeros(G, N, K).bfloat16()}, "b: dtype must be torch.float8"),
    "scales of bf16": (
        "labels",
        {"a": torch.zeros(M, K).bfloat16(), "b": torch.zeros(G, N, K).bfloat16()},
        "sfa, sfb: presence must be None with torch.bfloat16",
    ),
    "sfa shape": ("counts", {"sfa": torch.ones(M, KB)}, r"sfa: shape .*\(3, 128, 2\).*\(128, 2\)"),
    "sfa of labels": ("labels", {"sfa": torch.ones(1, M, KB)}, r"sfa: shape .*\(128, 2\)"),
    "sfb shape": ("labels", {"sfb": torch.ones(NB, KB)}, r"sfb: shape .*\(3, 2, 2\).* 3 times a"),
    "sfb missing": ("labels", {"sfb": None}, "sfa, sfb: shapes must be scales that go together"),
    "sfb int32": ("labels", {"sfb": torch.ones(G, NB, KB).int()}, "sfb: dtype .*UE8M0"),
    "sfb device": ("labels", {"sfb": torch.ones(G, NB, KB, device="meta")}, "sfb: device must be"),
    "fast blocks": ("labels", {"fast_accum": True}, "sfa: shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused_says_what_is_wrong_and_writes_nothing(name):
    kind, change, message = BAD[name]
    found = tensors(kind)
    for _ in range(2):  # a refusal leaves no plan behind
        with pytest.raises(ArgumentError, match=message) as refused:
            call(found, **change)
        assert isinstance(refused.value, RuntimeError)
    assert (found["out"] == 7).all()


def test_packed_fp4_and_other_devices_are_not_served():
    found = tensors("labels")
    with pytest.raises(UnsupportedError, match="packed FP4"):
        call(found, b=torch.zeros(G, N, K, dtype=torch.uint8))
    with pytest.raises(UnsupportedError, match="meta"):
        call({name: value.to("meta") for name, value in found.items()})
    assert (found["out"] == 7).all()


def test_what_only_gemm_can_be_asked_for_is_checked_too():
    found = tensors("batched")
    t = Tensors(found["a"], found["sfa"], found["b"], found["sfb"], None, found["out"])
    for grouping, message in (
        (Grouping(GroupKind.NONE, G), "grouping: kind must be one of labels, .*, k, got 'none'"),
        (Grouping(GroupKind.BATCHED, -1), "num_groups: value must be an int >= 0"),
        (Grouping(GroupKind.BATCHED, G, expected_m=-1), "expected_m: value"),
        (
            Grouping(GroupKind.MASKED, G),
            r"counts \(masked_m\): type must be torch.Tensor, got NoneType",
        ),
        (Grouping(GroupKind.BATCHED, G + 1), r"a: shape must be \(4, 128, 208\)"),
    ):
        with pytest.raises(ArgumentError, match=message):
            gemm(t, Options(grouping=grouping))
    batched = Options(grouping=Grouping(GroupKind.BATCHED, G))
    with pytest.raises(ArgumentError, match="groups: presence must be None"):
        gemm(t._replace(grouped_layout=torch.zeros(G).int()), batched)
    with pytest.raises(ArgumentError, match="c: presence must be None.*groups of rows add nothing"):
        gemm(t._replace(c=t.d), batched)
    assert (t.d == 7).all()


# --- refusals of groups along K -----------------------------------------------------------------


def along_k(**change: Any) -> dict[str, Any]:
    found = {
        "a": (torch.zeros(8 * 256).to(FP8), torch.ones(8, 3)),
        "b": (torch.zeros(16, 256).to(FP8), torch.ones(16, 2)),
        "out": torch.full((G, 8, 16), 7.0),
        "extents": torch.zeros(G, dtype=torch.int32),
        "total_k": 256,
    }
    return found | change


def bf16_along_k(**change: Any) -> dict[str, Any]:
    a, b = torch.zeros(256, 8).bfloat16(), torch.zeros(256, 16).bfloat16()
    return along_k(**{"a": a, "b": b, **change})


OUT = torch.full((G, 8, 16), 7.0)
BAD_ALONG_K: dict[str, tuple[dict[str, Any], str]] = {
    "out 2-D": (along_k(out=torch.zeros(8, 16)), r"out: shape must be \[groups, M, N\]"),
    "out bf16": (along_k(out=torch.zeros(G, 8, 16).bfloat16()), "d: dtype must be torch.float32"),
    "out none": (along_k(out=None), "out: type must be torch.Tensor"),
    "total": (along_k(total_k=240), r"a: number of elements must be 1920, got 2048"),
    "b size": (along_k(b=(torch.zeros(16, 128).to(FP8), torch.ones(16, 2))), "b: number of elem"),
    "a strided": (
        along_k(a=(torch.zeros(8, 512).to(FP8)[:, ::2], torch.ones(8, 2))),
        "a: strides must be contiguous",
    ),
    "no scales": (along_k(a=torch.zeros(2048).to(FP8)), r"sfa: presence must be \(8, 2\) or more"),
    "few scales": (
        along_k(a=(torch.zeros(2048).to(FP8), torch.ones(8, 1))),
        r"sfa: shape must be \(8, 2\) or more columns.*got \(8, 1\)",
    ),
    "transposed scales": (
        along_k(a=(torch.zeros(2048).to(FP8), torch.ones(3, 8))),
        r"sfa: shape must be \(8, 2\) or more columns.*got \(3, 8\)",
    ),
    "extents device": (
        along_k(extents=torch.zeros(G, dtype=torch.int32, device="meta")),
        r"extents \(grouped_layout, ks_tensor\): device must be cpu, got meta",
    ),
    "extents list": (along_k(extents=[256, 0, 0]), r"extents.*: type must be torch.Tensor"),
    "extents shape": (along_k(extents=torch.zeros(4).int()), r"extents.*: shape must be \(3,\)"),
    "extents int64": (along_k(extents=torch.zeros(G).long()), "extents.*: dtype must be .*int32"),
    "c dtype": (along_k(c=torch.zeros(G, 8, 16).half()), "c: dtype must be torch.float32"),
    "c shape": (along_k(c=torch.zeros(G, 8, 8)), "c: shape must be"),
    "c overlaps": (
        along_k(out=torch.zeros(4, 8, 16)[:3], c=None),
        "c: memory must be D itself",
    ),
    "int8": (
        along_k(a=torch.zeros(2048).char(), b=torch.zeros(16, 256).char()),
        "a: dtype must be FP8, bfloat16 or float16",
    ),
    "layout": (along_k(layout="tt"), 'layout: value must be "nt" or "tn"'),
    "bf16 total": (bf16_along_k(total_k=240), r"a: shape must be \(240, 8\), got \(256, 8\)"),
    "bf16 N": (bf16_along_k(b=torch.zeros(256, 8).bfloat16()), r"b: shape must be \(256, 16\)"),
    "bf16 strided": (
        bf16_along_k(a=torch.zeros(8, 256).bfloat16().t()),
        "a: stride of the last dimension",
    ),
    "bf16 types": (bf16_along_k(b=torch.zeros(256, 16).half()), "b: dtype must be torch.bfloat16"),
    "bf16 scales": (
        bf16_along_k(a=(torch.zeros(256, 8).bfloat16(), torch.ones(8, 2))),
        "sfa, sfb: presence must be None",
    ),
}


@pytest.mark.parametrize("name", BAD_ALONG_K)
def test_what_is_refused_of_groups_along_k(name):
    given, message = BAD_ALONG_K[name]
    if name == "c overlaps":
        whole = torch.full((4, 8, 16), 7.0)
        given = given | {"out": whole[:3], "c": whole[1:]}
    with pytest.raises(ArgumentError, match=message):
        deep_gemm.k_grouped_matmul(**given)
    assert given["out"] is None or given["out"].dim() == 2 or (given["out"] - 7 <= 0).all()


def test_layouts_that_are_not_served_along_k():
    for given in (along_k(layout="tn"), bf16_along_k(layout="nt")):
        with pytest.raises(UnsupportedError, match="8-bit operands are passed as nt"):
            deep_gemm.k_grouped_matmul(**given)
    a, b, d = torch.zeros(8, K).to(FP8), torch.zeros(16, K).to(FP8), torch.zeros(G, 8, 16)
    t = Tensors(a, torch.ones(8, 2), b, torch.ones(16, 2), None, d, torch.zeros(G).int())
    scaled_1d1d = Options(ScaleChoice.SCALED_1D1D)
    for options in (Options(ScaleChoice.SCALED_1D2D), scaled_1d1d._replace(fast_accum=True)):
        with pytest.raises(UnsupportedError, match="1x128 of both operands"):
            gemm(t, options._replace(grouping=Grouping(GroupKind.ALONG_K, G)))
    along = scaled_1d1d._replace(grouping=Grouping(GroupKind.ALONG_K, G))
    with pytest.raises(ArgumentError, match="beta: value must be 1"):
        gemm(t._replace(c=d), along, beta=0.5)
    negate = EpilogueOp("negate", "epilogue::Negate")
    with pytest.raises(UnsupportedError, match="epilogue ops after C"):
        gemm(t._replace(c=d), along._replace(epilogue=(negate,)))


# --- what only TMA asks -------------------------------------------------------------------------


def test_what_tma_asks_of_every_tensor():
    """Pitches of A, B and D, N, and what is left out: buffers along K, and a B that is copied."""
    found = tensors("counts")
    options = Options(grouping=Grouping(GroupKind.MASKED, G))
    good = Tensors(found["a"], None, found["b"], None, None, found["out"], found["counts"])
    problem = problem_of(good, options, 1.0, 1.0)
    check_tma(problem, good)
    for change, message in (
        ({"a": torch.zeros(G, M, K + 1).to(FP8)[:, :, :K]}, "a: row stride must be a multiple"),
        ({"b": torch.zeros(G, N, K + 1).to(FP8)[:, :, :K]}, "b: row stride must be a multiple"),
        ({"d": torch.zeros(G, M, N + 1).bfloat16()[:, :, :N]}, "d: row stride must be a multiple"),
    ):
        with pytest.raises(ArgumentError, match=message):
            check_tma(problem, good._replace(**change))
    with pytest.raises(ArgumentError, match=r"b: number of rows \(N\) must be a multiple of 8"):
        check_tma(replace(problem, n=N + 1), good)
    mn_major = torch.zeros(G, K, N + 1).to(FP8)[:, :, :N].transpose(1, 2)
    t = good._replace(b=mn_major)
    problem = problem_of(t, options, 1.0, 1.0)
    assert problem.transposed == ("b",)
    check_tma(problem, t)  # B is copied into whole lines first
    a, b, d = torch.zeros(8, 40).to(FP8), torch.zeros(16, 40).to(FP8), torch.zeros(G, 8, 16)
    t = Tensors(a, torch.ones(8, 2), b, torch.ones(16, 2), None, d, torch.zeros(G).int())
    problem = problem_of(t, Options(grouping=Grouping(GroupKind.ALONG_K, G)), 1.0, 1.0)
    check_tma(problem, t)


# --- plans and options --------------------------------------------------------------------------


def test_plans_follow_metadata_and_not_contents(monkeypatch):
    planned = []

    def plan(tensors, options, alpha, beta):
        planned.append(options.grouping)
        return lambda tensors, alpha, beta: None

    monkeypatch.setattr(dispatch, "_plan", plan)
    monkeypatch.setattr(dispatch, "_plans", {})
    found = tensors("counts")
    found["a"] = found["a"].as_subclass(CudaLike)
    counts = found["counts"]
    for expected in (None, 0, -5, 0, 3, 4, 120, 128, 10**9):
        call(found, counts=counts.random_(0, M), expected_m=expected)
    assert [grouping.expected_m for grouping in planned] == [0, 8, 128]
    call(found, counts=torch.zeros(G + 1, dtype=torch.int32))
    call(found, counts=None)
    assert [grouping.kind for grouping in planned[3:]] == [GroupKind.MASKED, GroupKind.BATCHED]


def test_hints_have_few_values():
    assert [bucketed(value, 200) for value in (None, -1, 0, 1, 2, 3, 33, 64)] == [
        0, 0, 0, 8, 8, 8, 40, 64,
    ]  # fmt: skip
    assert [bucketed(value, 200) for value in (65, 96, 97, 129, 200, 10**12)] == [
        80, 96, 112, 160, 224, 224,
    ]  # fmt: skip
    assert [bucketed(value, 5000) for value in (256, 257, 513, 1025, 5000)] == [
        256, 320, 640, 1280, 5120,
    ]  # fmt: skip
    assert bucketed(5, 0) == 0


def test_equal_options_are_one_object():
    asked = ScaleChoice.SCALED_1D2D, GroupKind.OFFSETS, 4
    first = group_options(*asked, alignment=1, zero_padding=True)
    assert first is group_options(*asked, alignment=1, zero_padding=True)
    assert first.grouping == Grouping(GroupKind.OFFSETS, 4), "no rows lie between groups"
    assert group_options(*asked, alignment=8, zero_padding=True).grouping == (
        Grouping(GroupKind.OFFSETS, 4, 8, 0, True)
    )


def test_outputs_that_are_allocated():
    found = tensors("counts") | {"out": None}
    assert call(found).shape == (G, M, N) and call(found).dtype == torch.bfloat16
    assert call(found, out_dtype=torch.float32).dtype == torch.float32
    assert call(tensors("labels") | {"out": None}).shape == (M, N)
    whole = torch.zeros(G, M, K).char(), torch.zeros(G, N, K).char()
    assert deep_gemm.grouped_matmul(*whole).dtype == torch.int32
    assert deep_gemm.grouped_matmul(*(x.half() for x in whole)).dtype == torch.float16


def test_stacks_of_scaled_tensors(rng):
    a, b = torch.randn(G, 5, K, generator=rng), torch.randn(G, N, K, generator=rng)
    for recipes in ((ROW_1X128, BLOCK_128X128), (PER_TENSOR, PER_TENSOR)):
        x, w = (
            deep_gemm.quantize(value, recipe) for value, recipe in zip((a, b), recipes, strict=True)
        )
        assert isinstance(x, ScaledTensor)
        out = deep_gemm.grouped_matmul(x, w, out_dtype=torch.float32)
        wanted = x.dequantize() @ w.dequantize().transpose(1, 2)
        assert torch.allclose(out, wanted, rtol=1e-4, atol=1e-3)


# --- settings -----------------------------------------------------------------------------------


def test_the_alignment_of_the_names():
    assert deep_gemm.get_mk_alignment_for_contiguous_layout() == 128
    version = settings.version()
    try:
        deep_gemm.set_mk_alignment_for_contiguous_layout(24)
        for name in ("mk", "m", "k"):
            assert getattr(deep_gemm, f"get_{name}_alignment_for_contiguous_layout")() == 24
        assert settings.version() == version, "alignment is part of a call: no plan is outdated"
        for bad in (0, -1, 1.5, None, True):
            with pytest.raises(ArgumentError, match="alignment: value must be an int >= 1"):
                deep_gemm.set_mk_alignment_for_contiguous_layout(bad)
        with deep_gemm.override(mk_alignment=64):
            assert deep_gemm.get_mk_alignment_for_contiguous_layout() == 64
        assert deep_gemm.get_mk_alignment_for_contiguous_layout() == 24
    finally:
        deep_gemm.set_mk_alignment_for_contiguous_layout(128)


@pytest.mark.parametrize(
    "expected, alignment",
    [(None, 128), (1, 64), (64, 64), (65, 128), (128, 128), (129, 64), (192, 64), (193, 128),
     (256, 128), (300, 128), (4096, 128)],
)  # fmt: skip
def test_the_alignment_to_choose(expected, alignment):
    theoretical = deep_gemm.get_theoretical_mk_alignment_for_contiguous_layout
    assert theoretical(expected) == theoretical(expected_m=expected, num_groups=8) == alignment
