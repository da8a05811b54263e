"""The drop-in names for groups on CPU tensors: argument orders, spellings, hints, refusals."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, UnsupportedError

G, M, N, K = 3, 256, 136, 256
FP8, BF16 = torch.float8_e4m3fn, torch.bfloat16
NAN = float("nan")
LABELS = torch.tensor([0] * 128 + [2] * 70 + [-1] * 58, dtype=torch.int32)
ENDS = torch.tensor([100, 100, 198], dtype=torch.int32)
COUNTS = torch.tensor([5, 0, 300], dtype=torch.int32)

FP8_TAIL = ["recipe", "recipe_a", "recipe_b", "compiled_dims", "disable_ue8m0_cast"]
PSUM = ["use_psum_layout", "ensure_zero_padding"]
HINT = ["expected_m_for_psum_layout"]
OVERLAP = ["enable_overlap", "max_block_n", "signal"]
LAID_OUT, STACKED = ["a", "b", "d", "grouped_layout"], ["a", "b", "d", "masked_m", "expected_m"]
EXTENTS = ["a", "b", "d", "ks_cpu", "grouped_layout", "c"]
ORDERS = {
    "m_grouped_fp8_gemm_nt_contiguous": [*LAID_OUT, *FP8_TAIL, *PSUM, *HINT],
    "m_grouped_fp8_gemm_nn_contiguous": [*LAID_OUT, *FP8_TAIL, *PSUM],
    "m_grouped_fp8_gemm_nt_masked": [*STACKED, *FP8_TAIL],
    "m_grouped_bf16_gemm_nt_contiguous": [*LAID_OUT, "compiled_dims", *PSUM, *HINT],
    "m_grouped_bf16_gemm_nn_contiguous": [*LAID_OUT, "compiled_dims", *PSUM],
    "m_grouped_bf16_gemm_nt_masked": [*STACKED, "compiled_dims"],
    "k_grouped_fp8_gemm_nt_contiguous": [*EXTENTS, "recipe", "compiled_dims", PSUM[0]],
    "k_grouped_bf16_gemm_tn_contiguous": [*EXTENTS, "compiled_dims", PSUM[0]],
    "m_grouped_gemm_fp8_fp8_bf16_nt_contiguous": ["lhs", "rhs", "out", "m_indices"],
    "m_grouped_gemm_fp8_fp8_bf16_nt_masked": ["lhs", "rhs", "out", "masked_m", "expected_m"],
    "k_grouped_wgrad_gemm_fp8_fp8_fp32_nt": ["lhs", "rhs", "out", "batch_sizes"],
}
BY_NAME = {
    "m_grouped_fp8_gemm_nt_contiguous": ["m_indices", "static_b"],
    "m_grouped_fp8_gemm_nn_contiguous": ["m_indices", "static_b"],
    "m_grouped_fp8_gemm_nt_masked": [*OVERLAP, "static_b"],
    "m_grouped_bf16_gemm_nt_contiguous": ["m_indices", "static_b"],
    "m_grouped_bf16_gemm_nn_contiguous": ["m_indices", "static_b"],
    "m_grouped_bf16_gemm_nt_masked": ["static_b"],
    "k_grouped_fp8_gemm_nt_contiguous": ["ks", "ks_tensor"],
    "k_grouped_bf16_gemm_tn_contiguous": ["ks", "ks_tensor"],
}
ALIASES = {
    "m_grouped_fp8_fp4_gemm_nt_contiguous": "m_grouped_fp8_gemm_nt_contiguous",
    "m_grouped_fp8_fp4_gemm_nn_contiguous": "m_grouped_fp8_gemm_nn_contiguous",
    "m_grouped_fp8_fp4_gemm_nt_masked": "m_grouped_fp8_gemm_nt_masked",
    "fp8_m_grouped_gemm_nt_masked": "m_grouped_fp8_gemm_nt_masked",
    "bf16_m_grouped_gemm_nt_masked": "m_grouped_bf16_gemm_nt_masked",
}
DEFAULTS = {
    "recipe": None, "compiled_dims": "nk", "disable_ue8m0_cast": False, "use_psum_layout": False,
    "ensure_zero_padding": True, "expected_m_for_psum_layout": None, "c": None,
    "enable_overlap": False, "max_block_n": 256, "signal": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def alignment() -> Iterator[None]:
    """Leave the alignment as it was."""
    yield
    deep_gemm.set_mk_alignment_for_contiguous_layout(128)


def fp8_rows(rng: Any) -> tuple[Any, Any]:
    a, b = (torch.randn(*shape, K, generator=rng).to(FP8) for shape in ((M,), (G, N)))
    return (a, torch.rand(M, 2, generator=rng)), (b, torch.rand(G, 2, 2, generator=rng))


def fp8_stack(rng: Any) -> tuple[Any, Any]:
    (a, sfa), b = fp8_rows(rng)
    return (a[:96].view(G, 32, K), sfa[:96].view(G, 32, 2)), b


def poisoned(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.full(shape, NAN, dtype=dtype)


def same(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Say whether two results are equal, with NaN where nothing was written."""
    return torch.equal(x.nan_to_num(-77.0), y.nan_to_num(-77.0))


# --- signatures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ORDERS)
def test_arguments_stand_in_the_interface_order(name):
    taken = inspect.signature(getattr(deep_gemm, name)).parameters
    by_place = [p.name for p in taken.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    by_name = [p.name for p in taken.values() if p.kind == p.KEYWORD_ONLY]
    assert by_place == ORDERS[name] and by_name == BY_NAME.get(name, [])
    along_k = name.startswith("k_grouped") and "wgrad" not in name
    wanted = DEFAULTS | ({"compiled_dims": "mn", "recipe": (1, 1, 128)} if along_k else {})
    for argument in set(taken) & set(wanted):
        assert taken[argument].default == wanted[argument], argument


@pytest.mark.parametrize("name", ALIASES)
def test_aliases_are_the_functions_themselves(name):
    assert getattr(deep_gemm, name) is getattr(deep_gemm, ALIASES[name])


# --- contiguous ---------------------------------------------------------------------------------


def test_fp8_by_labels_under_every_name_and_spelling(rng):
    a, b = fp8_rows(rng)
    wanted = deep_gemm.grouped_matmul(a, b, poisoned(M, N), labels=LABELS)
    transposed = tuple(x.transpose(1, 2) for x in b)
    nt, nn = (getattr(deep_gemm, f"m_grouped_fp8_gemm_{x}_contiguous") for x in ("nt", "nn"))
    v1 = deep_gemm.m_grouped_gemm_fp8_fp8_bf16_nt_contiguous
    for call, w in ((nt, b), (nn, transposed), (v1, b)):
        d = poisoned(M, N)
        assert call(a, list(w), d, LABELS) is None
        assert same(d, wanted)
    for call, w in ((nt, b), (nn, transposed)):
        for groups in ({"m_indices": LABELS}, {"grouped_layout": LABELS}):
            d = poisoned(M, N)
            call(list(a), w, d, recipe=(1, 128, 128), compiled_dims="", static_b=True, **groups)
            assert same(d, wanted)
        d = poisoned(M, N)
        call(a, w, d, LABELS, None, (1, 128), (128, 128), "mnk", True, False, False)
        assert same(d, wanted)
        for groups in ({}, {"m_indices": LABELS, "grouped_layout": LABELS}):
            with pytest.raises(ArgumentError, match="grouped_layout, m_indices: presence"):
                call(a, w, d, **groups)


def test_the_result_itself_is_the_product_of_each_group(rng):
    a, b = fp8_rows(rng)
    d = poisoned(M, N)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, LABELS)
    for group, rows in ((0, slice(0, 128)), (2, slice(128, 256))):
        each = (a[0][rows], a[1][rows]), (b[0][group], b[1][group])
        assert torch.equal(d[rows], deep_gemm.matmul(*each))


def test_labels_take_the_alignment_that_is_set(rng):
    a, b = fp8_rows(rng)
    labels = torch.tensor([0] * 64 + [1] * 64 + [-1] * 64 + [2] * 64, dtype=torch.int32)
    for alignment in (64, 128):
        deep_gemm.set_mk_alignment_for_contiguous_layout(alignment)
        wanted = deep_gemm.grouped_matmul(a, b, poisoned(M, N), labels=labels, alignment=alignment)
        d = poisoned(M, N)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, labels)
        assert same(d, wanted) and d[128:192].isnan().all()
    deep_gemm.set_mk_alignment_for_contiguous_layout(32)
    with pytest.raises(ArgumentError, match="alignment: value must be 64 or 128 with labels"):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, poisoned(M, N), labels)


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("alignment", [128, 64, 1, 40])
def test_ends_take_any_alignment(zeros, alignment, rng):
    a, b = fp8_rows(rng)
    deep_gemm.set_mk_alignment_for_contiguous_layout(alignment)
    wanted = deep_gemm.grouped_matmul(
        a, b, poisoned(M, N), offsets=ENDS, alignment=alignment, zero_padding=zeros
    )
    nt, nn = (getattr(deep_gemm, f"m_grouped_fp8_gemm_{x}_contiguous") for x in ("nt", "nn"))
    d = poisoned(M, N)
    nt(a, b, d, ENDS, use_psum_layout=True, ensure_zero_padding=zeros)
    assert same(d, wanted)
    d = poisoned(M, N)
    nt(a, b, d, ENDS, None, None, None, "nk", False, True, zeros, 100)
    assert same(d, wanted)
    d = poisoned(M, N)
    nn(a, tuple(x.transpose(1, 2) for x in b), d, ENDS, None, None, None, "nk", False, True, zeros)
    assert same(d, wanted)
    assert (d[100 : min(-(-100 // alignment) * alignment, 128)] == 0).all() or not zeros


@pytest.mark.parametrize("name", ["fp8", "bf16"])
def test_a_hint_of_rows_wants_ends(name, rng):
    a, b = fp8_rows(rng) if name == "fp8" else (torch.zeros(M, K).to(BF16),) * 2
    b = b if name == "fp8" else torch.zeros(G, N, K).to(BF16)
    call = getattr(deep_gemm, f"m_grouped_{name}_gemm_nt_contiguous")
    with pytest.raises(ArgumentError, match="expected_m_for_psum_layout: value must be None with"):
        call(a, b, poisoned(M, N), LABELS, expected_m_for_psum_layout=5)


def test_recipes_and_outputs(rng):
    (a, sfa), (b, _) = fp8_rows(rng)
    scales_1x128 = torch.rand(G, N, 2, generator=rng)
    for dtype in (BF16, torch.float16, torch.float32):
        d = poisoned(M, N, dtype=dtype)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
            (a, sfa), (b, scales_1x128), d, LABELS, (1, 1, 128)
        )
        wanted = deep_gemm.matmul((a[:128], sfa[:128]), (b[0], scales_1x128[0]), out_dtype=dtype)
        assert torch.equal(d[:128], wanted)
    with pytest.raises(ArgumentError, match=r"sfb: shape must be \(3, 2, 2\)"):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous((a, sfa), (b, scales_1x128), d, LABELS)
    with pytest.raises(UnsupportedError, match="are served"):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
            (a, sfa), (b, scales_1x128), d, LABELS, (1, 1, 32)
        )


@pytest.mark.parametrize("mn", [False, True], ids=["K contiguous", "N contiguous"])
def test_bf16_by_labels_and_ends(mn, rng):
    a, b = torch.randn(M, K, generator=rng).to(BF16), torch.randn(G, N, K, generator=rng).to(BF16)
    b = b.transpose(1, 2).contiguous().transpose(1, 2) if mn else b
    nt, nn = (getattr(deep_gemm, f"m_grouped_bf16_gemm_{x}_contiguous") for x in ("nt", "nn"))
    for grouped_layout, psum in ((LABELS, False), (ENDS, True)):
        how: dict[str, Any] = {"labels": grouped_layout}
        if psum:
            how = {"offsets": grouped_layout, "alignment": 128, "zero_padding": True}
        wanted = deep_gemm.grouped_matmul(a, b, poisoned(M, N), **how)
        for call, w in ((nt, b), (nn, b.transpose(1, 2))):
            d = poisoned(M, N)
            call(a, w, d, grouped_layout, "nk", psum)
            assert same(d, wanted)
            call(a, w, d.fill_(NAN), m_indices=grouped_layout, use_psum_layout=psum)
            assert same(d, wanted)
    with pytest.raises(ArgumentError, match="a: dtype must be torch.bfloat16.*grouped_matmul"):
        nt(a.half(), b.half(), d, LABELS)


# --- masked -------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [0, -1, 1, 17, 10**12])
def test_masked_takes_any_hint(expected, rng):
    a, b = fp8_stack(rng)
    wanted = deep_gemm.grouped_matmul(a, b, poisoned(G, 32, N), counts=COUNTS)
    for name in (
        "fp8_m_grouped_gemm_nt_masked",
        "m_grouped_fp8_fp4_gemm_nt_masked",
        "m_grouped_gemm_fp8_fp8_bf16_nt_masked",
    ):
        d = poisoned(G, 32, N)
        assert getattr(deep_gemm, name)(list(a), b, d, COUNTS, expected) is None
        assert same(d, wanted) and not d[2].isnan().any() and d[1].isnan().all()
    x, w = a[0].to(BF16), b[0].to(BF16)
    wanted = deep_gemm.grouped_matmul(x, w, poisoned(G, 32, N), counts=COUNTS)
    deep_gemm.bf16_m_grouped_gemm_nt_masked(x, w, d.fill_(NAN), COUNTS, expected, "nk")
    assert same(d, wanted)


def test_masked_ignores_what_it_has_no_use_for(rng):
    a, b = fp8_stack(rng)
    first, second = poisoned(G, 32, N), poisoned(G, 32, N)
    call = deep_gemm.m_grouped_fp8_gemm_nt_masked
    call(a, b, first, masked_m=COUNTS, expected_m=4)
    call(a, b, second, COUNTS, 4, max_block_n=64, signal=torch.zeros(8).int(), static_b=True)
    assert same(first, second)
    with pytest.raises(UnsupportedError, match="enable_overlap=True"):
        call(a, b, second.fill_(NAN), COUNTS, 4, enable_overlap=True)
    assert second.isnan().all()


def test_masked_of_nothing(rng):
    a, b = fp8_stack(rng)
    empty = a[0][:, :0], a[1][:, :0]
    counts = torch.zeros(G, dtype=torch.int32)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(empty, b, poisoned(G, 0, N), counts, 0)


def test_masked_refusals_name_their_tensors(rng):
    a, b = fp8_stack(rng)
    call, d = deep_gemm.m_grouped_fp8_gemm_nt_masked, poisoned(G, 32, N)
    for counts, message in (
        (COUNTS.to("meta"), r"masked_m\): device must be cpu, got meta"),
        ([5, 0, 3], r"masked_m\): type must be torch.Tensor, got list"),
        (COUNTS.long(), r"masked_m\): dtype must be torch.int32"),
        (COUNTS[:2], r"masked_m\): shape must be \(3,\)"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call(a, b, d, counts, 4)
    with pytest.raises(ArgumentError, match="a: number of dimensions must be 3, got 2"):
        call((a[0][0], a[1][0]), b, d, COUNTS, 4)
    with pytest.raises(ArgumentError, match="expected_m: type must be int, got float"):
        call(a, b, d, COUNTS, 1.0)
    assert d.isnan().all()


# --- along K ------------------------------------------------------------------------------------

KS = [128, 0, 272]
ON_DEVICE = torch.tensor(KS, dtype=torch.int32)


def flat(rng: Any, spare: int = 0) -> tuple[Any, Any]:
    """Return FP8 buffers and scales of the groups, with `spare` of K behind them."""
    k = sum(KS) + spare
    a, b = (torch.randn(rows * k, generator=rng).to(FP8) for rows in (16, 24))
    sfa, sfb = (torch.rand(4 + spare // 128, rows, generator=rng).t() for rows in (16, 24))
    return (a, sfa), (b, sfb)


def test_fp8_along_k_under_every_spelling(rng):
    a, b = flat(rng)
    start = torch.randn(3, 16, 24, generator=rng)
    wanted = deep_gemm.k_grouped_matmul(a, b, start.clone(), extents=ON_DEVICE, c=start)
    call = deep_gemm.k_grouped_fp8_gemm_nt_contiguous
    d = start.clone()
    assert call(a, b, d, KS, ON_DEVICE, d) is None
    assert torch.equal(d, wanted)
    for hosts in (tuple(KS), [400, 0, 0], [], None):
        d = poisoned(3, 16, 24, dtype=torch.float32)
        call(list(a), b, d, hosts, ON_DEVICE, start, (1, 1, 128), "mn", False)
        assert torch.equal(d, wanted)
    call(a, b, d.fill_(NAN), ks=KS, ks_tensor=ON_DEVICE, c=start, recipe=[1, 1, 128])
    assert torch.equal(d, wanted)
    alone = deep_gemm.k_grouped_matmul(a, b, d.fill_(NAN), extents=ON_DEVICE).clone()
    call(a, b, d.fill_(NAN), KS, ON_DEVICE)
    assert torch.equal(d, alone) and (d[1] == 0).all()


def test_extents_of_the_host_are_a_sum_alone(rng):
    a, b = flat(rng, spare=112)
    d, again = (poisoned(3, 16, 24, dtype=torch.float32) for _ in range(2))
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, [512, 0, 0], ON_DEVICE)
    exact = tuple((x[: rows * 400], sf) for (x, sf), rows in ((a, 16), (b, 24)))
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*exact, again, KS, ON_DEVICE)
    assert torch.equal(d, again)
    with pytest.raises(ArgumentError, match="a: number of elements must be 6400, got 8192"):
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, KS, ON_DEVICE)


def test_bf16_along_k(rng):
    a, b = (torch.randn(400, rows, generator=rng).to(BF16) for rows in (16, 24))
    call, start = deep_gemm.k_grouped_bf16_gemm_tn_contiguous, torch.ones(3, 16, 24)
    wanted = deep_gemm.k_grouped_matmul(a, b, start.clone(), extents=ON_DEVICE, c=start)
    for arguments in ((KS, ON_DEVICE, start), ([400], ON_DEVICE, start, "mn", False)):
        d = poisoned(3, 16, 24, dtype=torch.float32)
        assert call(a, b, d, *arguments) is None
        assert torch.equal(d, wanted)
    call(a, b, d.fill_(1.0), ks=KS, ks_tensor=ON_DEVICE, c=d)
    assert torch.equal(d, wanted)
    with pytest.raises(ArgumentError, match="a: dtype must be torch.bfloat16.*k_grouped_matmul"):
        call(a.half(), b.half(), d, KS, ON_DEVICE)


def test_refusals_along_k(rng):
    a, b = flat(rng)
    call, d = deep_gemm.k_grouped_fp8_gemm_nt_contiguous, torch.full((3, 16, 24), 7.0)
    given: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"ks_cpu": KS}, ArgumentError, "grouped_layout, ks_tensor: presence.*got none"),
        (
            {"grouped_layout": ON_DEVICE, "ks_tensor": ON_DEVICE},
            ArgumentError,
            "grouped_layout, ks_tensor: presence.*got both",
        ),
        ({"ks_cpu": KS, "ks": KS, "ks_tensor": ON_DEVICE}, ArgumentError, "ks_cpu, ks: presence"),
        ({"ks_cpu": [-16, 416], "ks_tensor": ON_DEVICE}, ArgumentError, "ks_cpu: values"),
        ({"ks_tensor": ON_DEVICE, "recipe": (1, 128, 128)}, UnsupportedError, "recipe"),
        ({"ks_tensor": ON_DEVICE, "use_psum_layout": True}, UnsupportedError, "use_psum_layout"),
        ({"ks_tensor": ON_DEVICE, "compiled_dims": "q"}, ArgumentError, "compiled_dims"),
        ({"ks_tensor": ON_DEVICE, "c": d.half()}, ArgumentError, "c: dtype"),
        ({"ks_tensor": ON_DEVICE[:2]}, ArgumentError, r"extents.*ks_tensor\): shape"),
    ]
    for arguments, error, message in given:
        with pytest.raises(error, match=message):
            call(a, b, d, **arguments)
    assert (d == 7).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_the_first_name_of_weight_gradients_accumulates(transposed, rng):
    (a, sfa), (b, sfb) = flat(rng)
    start = torch.randn(3, 16, 24, generator=rng)
    wanted = deep_gemm.k_grouped_matmul(
        (a, sfa), (b, sfb), start.clone(), extents=ON_DEVICE, c=start
    )
    if transposed:
        sfa, sfb = sfa.t().contiguous(), sfb.t()
    out = start.clone()
    call = deep_gemm.k_grouped_wgrad_gemm_fp8_fp8_fp32_nt
    assert call([a, sfa], (b, sfb), out, KS) is None
    assert torch.equal(out, wanted)
    with pytest.raises(ArgumentError, match="batch_sizes: values must be multiples of 16"):
        call([a, sfa], (b, sfb), out, [120, 8, 272])
    with pytest.raises(ArgumentError, match="out: shape must be"):
        call([a, sfa], (b, sfb), out[0], KS)
    assert torch.equal(out, wanted)


# --- pairs, and names of other GPUs -------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ORDERS if "bf16_gemm" not in name])
def test_what_is_no_pair_or_packed_is_refused(name, rng):
    call = getattr(deep_gemm, name)
    last = {"wgrad": (KS,), "k_grouped": (KS, ON_DEVICE), "masked": (COUNTS, 1), "": (LABELS,)}
    others = next(value for part, value in last.items() if part in name)
    _, b = fp8_rows(rng)
    for pair in (None, 3, (torch.zeros(1),), torch.zeros(2, 2)):
        with pytest.raises(ArgumentError, match="form must be a pair"):
            call(pair, b, poisoned(M, N), *others)
    with pytest.raises(UnsupportedError, match="packed FP4"):
        call((torch.zeros(M, K).char(), torch.ones(M, 2)), b, poisoned(M, N), *others)


STUBS = (
    "SymmBuffer", "bf16_mega_moe", "fp8_fp4_mega_moe", "get_symm_buffer_for_mega_moe",
    "transform_weights_for_mega_moe", "k_grouped_fp8_gemm_tn_contiguous",
    "get_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor",
)  # fmt: skip


@pytest.mark.parametrize("name", STUBS)
def test_names_of_other_gpus_are_there_and_raise(name):
    call = getattr(deep_gemm, name)
    assert call.__name__ == name and "UnsupportedError" in call.__doc__
    with pytest.raises(UnsupportedError, match=rf"{name}\(\): needs a GPU of compute capability"):
        call(torch.zeros(1), 2, key=3)
