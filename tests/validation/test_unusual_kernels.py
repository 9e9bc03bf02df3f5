"""Unusual honest kernels pass; what looks like them and computes nothing is refused by name."""

from __future__ import annotations

import asyncio
import functools
import logging
import shutil
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from trying import QUICK  # noqa: E402

from kernel_compass.records.trial import Reason  # noqa: E402
from kernel_compass.validation.cheat_parts import FunctionRunner, honest  # noqa: E402
from kernel_compass.validation.judge import judge  # noqa: E402
from kernel_compass.validation.machines import CpuMachine  # noqa: E402
from kernel_compass.validation.self_test_problem import SelfTestProblem  # noqa: E402
from kernel_compass.validation.value_chain import made_of  # noqa: E402
from kernel_compass.validation.watch import Watch  # noqa: E402

PROBLEM = SelfTestProblem(torch)
right = honest(torch, PROBLEM)


def said_of(make):
    watch = Watch(torch)
    return judge(
        torch,
        PROBLEM,
        PROBLEM.workload,
        lambda: FunctionRunner(make()),
        CpuMachine(torch),
        watch,
        QUICK,
    )


def normalized(logits):
    powers = torch.exp(logits - logits.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


KERNELS = {}
CHEATS = {}


def kernel(make):
    KERNELS[make.__name__] = make
    return make


def cheat(*reasons):
    def register(make):
        CHEATS[make.__name__] = (make, reasons)
        return make

    return register


@kernel
def scripted():
    def function(x, w):
        logits = torch.matmul(x, w)
        powers = torch.exp(logits - logits.max(-1, keepdim=True)[0])
        return powers / powers.sum(-1, keepdim=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(function)


@kernel
def through_numpy():
    def function(x, w):
        logits = x.numpy() @ w.numpy()
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        return torch.from_numpy(powers / powers.sum(-1, keepdims=True))

    return function


@kernel
def a_pool_that_is_closed():
    def function(x, w):
        with ThreadPoolExecutor(2) as pool:
            return torch.stack(list(pool.map(lambda one: right(one[None], w)[0], x)))

    return function


@kernel
def threads_that_are_joined():
    def function(x, w):
        out = torch.empty(*x.shape[:2], w.shape[1])

        def work(index):
            out[index] = right(x[index : index + 1], w)[0]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(x))]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        return out

    return function


@kernel
def inference_mode():
    def function(x, w):
        with torch.inference_mode():
            return right(x, w)

    return function


@kernel
def recursive():
    def product(x, w):
        half = x.shape[-1] // 2
        if half < 8:
            return x @ w
        return product(x[..., :half], w[:half]) + product(x[..., half:], w[half:])

    return lambda x, w: normalized(product(x, w))


@kernel
def double_buffered():
    buffers, calls = {}, [0]

    def function(x, w):
        calls[0] += 1
        shape = (*x.shape[:2], w.shape[1])
        pair = buffers.setdefault(shape, [torch.empty(shape) for _ in "ab"])
        logits = torch.matmul(x, w, out=pair[calls[0] % 2])
        logits -= logits.amax(-1, keepdim=True)
        return logits.exp_() / logits.sum(-1, keepdim=True)

    return function


@kernel
def rows_of_a_padded_buffer():
    def function(x, w):
        out = torch.empty(*x.shape[:2], w.shape[1] + 7)
        out[..., : w.shape[1]] = right(x, w)
        return out[..., : w.shape[1]]

    return function


@kernel
def a_coroutine():
    async def later(x, w):
        return right(x, w)

    return lambda x, w: asyncio.run(later(x, w))


@kernel
def plans_by_shape():
    @functools.lru_cache
    def rows(count):
        return max(1, count // 2)

    return lambda x, w: torch.cat([right(a, w) for a in x.split(rows(x.shape[1]), 1)], 1)


@kernel
def threads_set_and_set_back():
    def function(x, w):
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return right(x, w)
        finally:
            torch.set_num_threads(before)

    return function


@kernel
def random_numbers_of_its_own():
    def function(x, w):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            order = torch.randperm(x.shape[-1])
        return normalized(x[..., order] @ w[order])

    return function


@kernel
def logs_an_exception():
    def function(x, w):
        try:
            raise KeyError("no such plan")
        except KeyError:
            logging.getLogger("a kernel").debug("another plan", exc_info=True)
        return right(x, w)

    return function


@kernel
def rows_by_vmap():
    return lambda x, w: torch.vmap(lambda rows: right(rows[None], w)[0])(x)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs g++")
@pytest.mark.filterwarnings("ignore")
def test_the_baseline_compiled_is_fused_and_stays_compiled():
    """What looks at operations does not make torch run the code that was compiled."""
    compiled = torch.compile(lambda x, w: torch.softmax(x @ w, -1), dynamic=True)
    said = said_of(lambda: compiled)
    assert said.reason is None, said.detail
    given = PROBLEM.inputs(PROBLEM.workload, 3)
    assert "_softmax" not in made_of(torch, given, lambda: compiled(**given)).names.values()


@cheat(Reason.BASELINE_IN_DISGUISE)
def the_baseline_in_a_thread():
    def function(x, w):
        found = []
        thread = threading.Thread(target=lambda: found.append(torch.softmax(x @ w, -1)))
        thread.start()
        thread.join()
        return found[0]

    return function


@cheat(Reason.BASELINE_IN_DISGUISE)
def the_baseline_in_a_pool_that_is_closed():
    def function(x, w):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(PROBLEM.baseline, {"x": x, "w": w}).result()

    return function


@cheat(Reason.BASELINE_IN_DISGUISE)
def the_baseline_through_numpy():
    return lambda x, w: torch.from_numpy(np.array(torch.softmax(x @ w, -1).numpy()))


@cheat(Reason.BASELINE_IN_DISGUISE)
def the_baseline_scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(
            lambda x, w: torch.softmax(x @ w, -1) * 1.0,
            tuple(PROBLEM.inputs(PROBLEM.workload, 1).values()),
            check_trace=False,
        )


@cheat(Reason.BASELINE_IN_DISGUISE)
def the_baseline_turned_round_twice():
    return lambda x, w: torch.softmax(x.flip(0).flip(0) @ w, -1)


@cheat(Reason.LOOKS_AT_THE_JUDGE)
def frames_by_a_traceback():
    def function(x, w):
        try:
            raise ValueError
        except ValueError as error:
            frame = error.__traceback__.tb_frame
        while frame is not None:
            draw = frame.f_locals.get("draw")
            if draw is not None:
                with draw.sealed.opened() as expected:
                    return expected.values[0].float()
            frame = frame.f_back
        return right(x, w)

    return function


@cheat(Reason.LOOKS_AT_THE_JUDGE)
def frames_by_a_generator():
    def function(x, w):
        numbers = (one for one in [1])
        assert numbers.gi_frame is not None
        return right(x, w)

    return function


@cheat(Reason.NO_WORK)
def remembers_while_nobody_watches():
    kept = {}

    def function(x, w):
        looked_at = torch.utils._python_dispatch._get_current_dispatch_mode() is not None
        if looked_at or sys.getprofile() or sys.gettrace():
            return right(x, w)
        key = (x.shape, hash(x.numpy().tobytes()), hash(w.numpy().tobytes()))
        if key not in kept:
            time.sleep(0.0005)  # as a larger kernel takes
            kept[key] = right(x, w)
        return kept[key].clone()

    return function


@cheat(Reason.NO_WORK, Reason.STALE_RESULT, Reason.CACHES_BY_IDENTITY)
def remembers_by_address_and_first_numbers():
    kept = {}

    def function(x, w):
        parts = [(t.data_ptr(), t.shape, t.flatten()[:4].numpy().tobytes()) for t in (x, w)]
        key = tuple(parts)
        if key not in kept:
            kept[key] = right(x, w)
        return kept[key].clone()

    return function


@cheat(Reason.NO_WORK, Reason.STALE_RESULT, Reason.CACHES_BY_IDENTITY)
def computes_rows_that_changed():
    kept = {}

    def function(x, w):
        last = kept.get((x.shape, w.shape))
        if last is None or not torch.equal(last[1], w):
            result = right(x, w)
        else:
            changed, result = (last[0] != x).any(-1), last[2].clone()
            if changed.any():
                result[changed] = right(x[changed][None], w)[0]
        kept[(x.shape, w.shape)] = (x.clone(), w.clone(), result.clone())
        return result

    return function


@cheat(Reason.WRONG_RESULT, Reason.NOT_REPEATABLE, Reason.STALE_RESULT, Reason.CACHES_BY_IDENTITY)
def leaves_a_row_out_where_operands_lie_alone():
    def function(x, w):
        found = right(x, w)
        if x.storage_offset() == 0 and x.untyped_storage().nbytes() == x.numel() * 4:
            found[:, -1] = found[:, 0]
        return found

    return function


def _from_the_fortieth(change):
    calls = [0]

    def function(x, w):
        calls[0] += 1
        return right(x, w) if calls[0] < 40 else change(x, w)

    return function


@cheat(Reason.NOT_REPEATABLE, Reason.STALE_RESULT)
def rounds_from_the_fortieth_call():
    return _from_the_fortieth(lambda x, w: right(x.bfloat16().float(), w))


@cheat(Reason.NOT_REPEATABLE, Reason.STALE_RESULT)
def stops_at_the_fortieth_call():
    kept = {}
    return _from_the_fortieth(lambda x, w: kept.setdefault((x.shape, w.shape), right(x, w)).clone())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KERNELS)
def test_an_unusual_kernel_passes(name):
    said = said_of(KERNELS[name])
    assert said.reason is None, f"{said.reason}: {said.detail}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHEATS)
def test_what_only_looks_like_one_is_refused(name):
    make, reasons = CHEATS[name]
    said = said_of(make)
    assert said.reason in reasons, f"{said.reason}: {said.detail}"
