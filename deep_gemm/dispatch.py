"""From a call to a launch: gemm() keeps a plan for each metadata of its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from . import settings
from .problem import GemmProblem, checks
from .problem.from_tensors import check_tensors, check_tma, problem_of
from .problem.request import Options, Tensors

_MAX_PLANS = 4096
Plan: TypeAlias = Callable[[Tensors, float, float], None]
_plans: dict[tuple[object, ...], Plan] = {}


def gemm(tensors: Tensors, options: Options, alpha: float = 1.0, beta: float = 1.0) -> None:
    """Write D = alpha * A @ B^T + beta * C for A [M, K] and B [N, K]; see matmul().

    With options.grouping, shapes are those of problem/grouped.py; see grouped_matmul().
    """
    if beta == 0 and tensors.c is not None:
        tensors = tensors._replace(c=None)
    try:
        key = _key(tensors, options, alpha, beta)
    except AttributeError:
        check_tensors(tensors, options)
        raise
    if tensors.c is not None:
        checks.same_or_apart("c", tensors.c, tensors.d)
    plan = _plans.get(key)
    if plan is None:
        plan = _plan(tensors, options, alpha, beta)
        # Plans are kept for CUDA tensors only: get_device() is -1 for every other kind of device.
        if tensors.a.is_cuda:
            if len(_plans) >= _MAX_PLANS:
                _plans.clear()
            _plans[key] = plan
    plan(tensors, alpha, beta)


def _key(tensors: Tensors, options: Options, alpha: float, beta: float) -> tuple[object, ...]:
    """Return all that a plan depends on; AttributeError where a tensor is none."""
    a, sfa, b, sfb, c, d, layout, epilogue = tensors
    return (
        settings.version(), options,
        a.get_device(), a.shape, a.stride(), a.dtype,
        b.get_device(), b.shape, b.stride(), b.dtype,
        d.get_device(), d.shape, d.stride(), d.dtype,
        sfa is None or (sfa.get_device(), sfa.shape, sfa.stride(), sfa.dtype),
        sfb is None or (sfb.get_device(), sfb.shape, sfb.stride(), sfb.dtype),
        c is None or (
            c.get_device(), c.shape, c.stride(), c.dtype, c.data_ptr() == d.data_ptr(), beta == 1,
        ),
        alpha == 1,
        layout is None or (layout.get_device(), layout.shape, layout.stride(), layout.dtype),
        epilogue and tuple((x.get_device(), x.shape, x.stride(), x.dtype) for x in epilogue),
    )  # fmt: skip


def _plan(tensors: Tensors, options: Options, alpha: float, beta: float) -> Plan:
    """Check everything but addresses, and return what runs such tensors from now on."""
    problem = problem_of(tensors, options, alpha, beta)
    groups = problem.grouping.num_groups if problem.grouping else 1
    if 0 in (problem.m, problem.n, groups):
        return _nothing
    if problem.k == 0:
        return _without_k(problem)
    if problem.grouping is not None and tensors.c is not None:
        if tensors.c.data_ptr() != tensors.d.data_ptr():
            plan = _device_plan(problem, tensors._replace(c=tensors.d))
            return lambda t, alpha, beta: plan(_c_copied_to_d(t), alpha, beta)
    return _device_plan(problem, tensors)


def _device_plan(problem: GemmProblem, tensors: Tensors) -> Plan:
    if tensors.a.device.type == "cpu":
        from . import reference

        product = reference.gemm if problem.grouping is None else reference.grouped_gemm
        return lambda tensors, alpha, beta: product(problem, tensors, alpha, beta)
    check_tma(problem, tensors)
    from .kernels import gemm_plan

    return gemm_plan.plan(problem, tensors)


def _c_copied_to_d(t: Tensors) -> Tensors:
    """Copy C into D, to which the product is then added; addresses are checked first."""
    if t.d.is_cuda:
        for name, value in (("a", t.a), ("b", t.b), ("d", t.d)):
            checks.address(name, value.data_ptr())
    if t.c is not None:
        t.d.copy_(t.c)
    return t._replace(c=t.d)


def _nothing(tensors: Tensors, alpha: float, beta: float) -> None:
    """Do nothing: D has no elements."""


def _without_k(problem: GemmProblem) -> Plan:
    """Return what writes the epilogue of a sum over nothing."""

    def plan(tensors: Tensors, alpha: float, beta: float) -> None:
        if problem.epilogue:
            from .reference.epilogue import of_empty_sum

            tensors.d.copy_(of_empty_sum(problem, tensors, beta))
        elif tensors.c is None:
            tensors.d.zero_()
        else:
            tensors.d.copy_(tensors.c if beta == 1 else tensors.c * beta)

    return plan
