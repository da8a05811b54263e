"""Plans, warm-up, capture and refusals where a GPU is present."""

from __future__ import annotations

import threading

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, UnsupportedError
from deep_gemm.jit import driver
from deep_gemm.testing import poison

from .gpu_kit import normal, run

BF16 = torch.bfloat16


@pytest.fixture
def nothing_loaded(monkeypatch):
    """Make every kernel look as if it had not been loaded yet."""
    monkeypatch.setattr(driver, "_loaded", {})


def captured(call):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    torch.cuda.synchronize()


# Shapes here appear in no other test: a plan kept by one would hide what is tested.


def test_a_first_call_inside_a_capture_is_refused_and_a_later_one_works(nothing_loaded, seed):
    problem = normal(37, 136, 400, seed)
    a, sfa, b, sfb = problem.tensors
    out = poison.nan_fill_(torch.empty(37, 136, dtype=BF16, device="cuda"))
    with pytest.raises(UnsupportedError, match="warmup"):
        captured(lambda: deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out))
    torch.cuda.synchronize()
    assert out.isnan().all()
    deep_gemm.warmup([37], 136, 400)
    captured(lambda: deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out))
    assert out.isfinite().all()


def test_warmup_covers_every_m(nothing_loaded, seed):
    configs = deep_gemm.warmup(range(1, 600), 576, 384)
    assert 1 < len(configs) < 20
    problem = normal(599, 576, 384, seed)
    loaded = dict(driver._loaded)
    for m in (1, 64, 65, 300, 599):
        a, sfa, b, sfb = problem.tensors
        deep_gemm.matmul((a[:m], sfa[:m]), (b, sfb))
    assert driver._loaded == loaded, "a call loaded a kernel that warmup() had not"


@pytest.mark.parametrize("which", ["a", "b", "d"])
def test_an_unaligned_address_is_refused_before_any_launch(which, seed):
    a, sfa, b, sfb = normal(16, 64, 128, seed).tensors
    d = torch.full((17, 64), 7.0, dtype=BF16, device="cuda")
    if which == "d":
        out = d.view(-1)[4 : 4 + 16 * 64].view(16, 64)
    else:
        out = d[:16]
        wide = torch.zeros(64 * 128 + 16, dtype=torch.uint8, device="cuda")
        rows = 16 if which == "a" else 64
        moved = wide[8 : 8 + rows * 128].view(torch.float8_e4m3fn).view(rows, 128)
        a, b = (moved, b) if which == "a" else (a, moved)
    with pytest.raises(ArgumentError, match=f"{which}: address"):
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out)
    assert (d == 7.0).all()


def test_a_pitch_that_tma_cannot_take_is_refused(seed):
    a, sfa, b, sfb = normal(16, 64, 96, seed).tensors
    d = torch.full((16, 68), 7.0, dtype=BF16, device="cuda")
    with pytest.raises(ArgumentError, match="d: row stride"):
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d[:, :64].as_strided((16, 64), (68, 1)))
    odd = torch.zeros(16, 100, dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
    with pytest.raises(ArgumentError, match="a: row stride.*rows of 96"):
        deep_gemm.fp8_gemm_nt((odd[:, :96], sfa), (b, sfb), d[:, :64])
    assert (d == 7.0).all()


def test_rows_of_d_that_end_inside_16_bytes_are_refused(seed):
    # TMA would write up to the next 16 bytes: columns 61 to 63 of a pitch of 64.
    wide = normal(19, 64, 112, seed)
    buffer, check = poison.canary(19, 61, BF16, "cuda", row_pad=3)
    with pytest.raises(ArgumentError, match="b: number of rows"):
        deep_gemm.fp8_gemm_nt((wide.a, wide.sfa), (wide.b[:61], wide.sfb), buffer)
    check()
    assert buffer.isnan().all()


def test_tensors_that_are_not_on_one_device_are_refused(seed):
    a, sfa, b, sfb = normal(16, 64, 128, seed).tensors
    d = torch.full((16, 64), 7.0, dtype=BF16, device="cuda")
    with pytest.raises(ArgumentError, match="sfb: device must be cuda:0, got cpu"):
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb.cpu()), d)
    assert (d == 7.0).all()


def test_threads_share_plans(seed):
    problem = normal(200, 576, 1152, seed)
    wanted = run(problem)
    outs = [torch.empty_like(wanted) for _ in range(64)]
    failures = []

    def work(part):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for out in part:
                    a, sfa, b, sfb = problem.tensors
                    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out)
            stream.synchronize()
        except Exception as error:  # reported by the main thread
            failures.append(error)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(outs[i::8],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(torch.equal(out, wanted) for out in outs)


def test_availability_names_the_device():
    found = deep_gemm.is_available()
    assert found and torch.cuda.get_device_name() in found.reason
