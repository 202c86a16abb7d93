from __future__ import annotations

import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.search import NumpyKernel, kernel_for, warm_up
from sidr_rag.search.compiling import compile_cache_dir
from sidr_rag.search.cpu import NumbaKernel
from sidr_rag.search.kernels import COMPILED_FROM_ROWS, KernelLoader

REPO = Path(__file__).resolve().parents[2]
REFERENCE = NumpyKernel()


# Half the time of compiling, where only that it happens matters.
PLAIN_CODE = {"NUMBA_OPT": "0"}


@pytest.fixture(scope="session")
def compiled():
    return NumbaKernel()


COUNTING_HITS = """
    import numba
    from sidr_rag.search.cpu import NumbaKernel
    kernel = NumbaKernel()
    assert numba.config.CACHE_DIR == ""
    print(sum(map(sum, (d.stats.cache_hits.values() for d in vars(kernel._code).values()))))
"""


@pytest.fixture(scope="session")
def first_build(tmp_path_factory):
    """A process that compiled into an empty cache folder, and that folder; who changes it takes a copy."""
    folder = tmp_path_factory.mktemp("cache")
    return run_python(COUNTING_HITS, {"XDG_CACHE_HOME": str(folder), "NUMBA_CACHE_DIR": "", **PLAIN_CODE}), folder


@pytest.fixture(params=["numpy", "numba"])
def kernel(request):
    return REFERENCE if request.param == "numpy" else request.getfixturevalue("compiled")


def make_postings(rng, n_rows, lengths, dtype):
    """Posting lists of the given lengths, with their slices in order of the lists."""
    lists = [np.sort(rng.choice(n_rows, length, replace=False)) for length in lengths]
    ends = np.cumsum([len(rows) for rows in lists], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if lists else np.zeros(0, np.int64)
    rows = np.concatenate(lists).astype(dtype) if lists else np.zeros(0, dtype)
    return rows, starts, ends


def plain_scores(rows, starts, ends, weights, n_rows, values):
    """What `accumulate_weighted` means, in pure Python."""
    scores = [0.0] * n_rows
    for start, end, weight in zip(starts.tolist(), ends.tolist(), weights.tolist(), strict=True):
        for j in range(start, end):
            scores[int(rows[j])] += weight * float(values[j])
    return scores


def plain_selection(scores, factors, allowed, k):
    """What `select` means, in pure Python."""
    found = []
    for row, score in enumerate(scores):
        if score > 0 and (allowed is None or allowed[row]):
            found.append((float(np.float32(score if factors is None else score * factors[row])), row))
    found.sort(key=lambda hit: (-hit[0], hit[1]))
    return [row for _, row in found[:k]], [value for value, _ in found[:k]]


def assert_same_bits(one, other):
    assert one.dtype == other.dtype
    assert one.tobytes() == other.tobytes()


def assert_same_hits(one, other):
    for a, b in zip(one, other, strict=True):
        assert_same_bits(a, b)


# accumulate_weighted


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_accumulate_weighted_by_hand(kernel, dtype):
    rows = np.array([0, 2, 1, 2], dtype)
    values = np.array([0.5, 2.0, 4.0, 8.0], np.float32)
    scores = np.zeros(4)
    bounds = np.array([0, 2], np.int64), np.array([2, 4], np.int64)
    kernel.accumulate_weighted(rows, values, *bounds, np.array([1.0, 0.25]), scores)
    assert scores.tolist() == [0.5, 1.0, 4.0, 0.0]


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e12, "mixed"])
@pytest.mark.parametrize(
    ("n_rows", "dtype"),
    [(1, np.uint16), (7, np.uint16), (65_535, np.uint16), (65_536, np.uint16), (65_537, np.uint32), (200, np.uint32)],
)
def test_kernels_agree_bit_for_bit(compiled, n_rows, dtype, scale):
    rng = np.random.default_rng(n_rows)
    lengths = [0, n_rows, *rng.integers(0, n_rows + 1, 12).tolist(), 0, min(n_rows, 1)]
    rows, starts, ends = make_postings(rng, n_rows, lengths, dtype)
    spread = 10.0 ** rng.integers(-12, 13, len(lengths)) if scale == "mixed" else scale
    weights = rng.random(len(lengths)) * spread
    values = (rng.random(len(rows)) * rng.choice([1e-6, 1.0, 1e6], len(rows))).astype(np.float32)
    factors = rng.random(n_rows) + 0.5
    allowed = rng.random(n_rows) < 0.5
    ours, reference = np.zeros(n_rows), np.zeros(n_rows)
    for each, scores in ((compiled, ours), (REFERENCE, reference)):
        each.accumulate_weighted(rows, values, starts, ends, weights, scores)
    assert_same_bits(ours, reference)
    assert reference.any()
    for k in (0, 1, 10, n_rows, n_rows + 5):
        for f in (None, factors):
            for a in (None, allowed):
                assert_same_hits(compiled.select(ours, f, a, k), REFERENCE.select(reference, f, a, k))


@settings(max_examples=80, deadline=None)
@given(
    n_rows=st.integers(1, 8),
    picks=st.lists(st.tuples(st.sets(st.integers(0, 7)), st.floats(1e-9, 1e9)), max_size=5),
    dtype=st.sampled_from([np.uint16, np.uint32]),
)
def test_accumulate_against_pure_python(compiled, n_rows, picks, dtype):
    lists = [sorted(row for row in rows if row < n_rows) for rows, _ in picks]
    weights = np.array([weight for _, weight in picks], np.float64)
    rows = np.array([row for each in lists for row in each], dtype)
    ends = np.cumsum([len(each) for each in lists], dtype=np.int64)
    starts = ends - np.array([len(each) for each in lists], np.int64)
    values = np.linspace(0.1, 3.0, len(rows)).astype(np.float32)
    expected = plain_scores(rows, starts, ends, weights, n_rows, values)
    for each in (REFERENCE, compiled):
        scores = np.zeros(n_rows)
        each.accumulate_weighted(rows, values, starts, ends, weights, scores)
        assert scores.tolist() == expected


def test_the_order_of_the_sum_is_the_order_of_the_lists(kernel):
    rows, starts, ends = np.zeros(3, np.uint16), np.arange(3), np.arange(1, 4)
    scores = np.zeros(1)
    kernel.accumulate_weighted(rows, np.ones(3, np.float32), starts, ends, np.array([1e16, 1.0, 1.0]), scores)
    assert scores[0] == (1e16 + 1.0) + 1.0
    assert scores[0] != 1e16 + (1.0 + 1.0)


def test_products_are_rounded_before_they_are_added(kernel):
    # A fused multiply-add would keep the product's low bits and leave another sum.
    value, weight = np.float32(1 + 2**-23), 1 + 2**-52
    scores = np.array([-1.0])
    bounds = np.zeros(1, np.int64), np.ones(1, np.int64)
    kernel.accumulate_weighted(np.zeros(1, np.uint16), np.array([value]), *bounds, np.array([weight]), scores)
    assert scores[0] == weight * float(value) - 1.0


def test_slices_may_lie_in_any_order_and_leave_gaps(kernel):
    rows = np.array([9, 1, 2, 9, 0], np.uint32)
    scores = np.zeros(3)
    bounds = np.array([4, 1], np.int64), np.array([5, 3], np.int64)
    kernel.accumulate_weighted(rows, np.ones(5, np.float32), *bounds, np.array([1.0, 2.0]), scores)
    assert scores.tolist() == [1.0, 2.0, 2.0]


def test_read_only_memory_mapped_arrays(kernel, tmp_path):
    rng = np.random.default_rng(5)
    for dtype in (np.uint16, np.uint32):
        rows, starts, ends = make_postings(rng, 50, [5, 0, 50, 20], dtype)
        values = rng.random(len(rows), dtype=np.float32)
        files = {"rows": rows, "starts": starts, "ends": ends, "values": values, "factors": rng.random(50) + 0.1}
        files |= {"allowed": rng.random(50) < 0.7, "weights": rng.random(4)}
        mapped = {}
        for name, array in files.items():
            np.save(tmp_path / f"{name}.npy", array)
            mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
            assert not mapped[name].flags.writeable
        lists = mapped["starts"], mapped["ends"], mapped["weights"]
        scores = np.zeros(50)
        kernel.accumulate_weighted(mapped["rows"], mapped["values"], *lists, scores)
        assert scores.tolist() == plain_scores(rows, starts, ends, files["weights"], 50, values)
        scores.flags.writeable = False
        hits = kernel.select(scores, mapped["factors"], mapped["allowed"], 10)
        assert hits[0].tolist() == plain_selection(scores, files["factors"], files["allowed"], 10)[0]


def test_strided_and_unaligned_arrays(kernel):
    rows = np.array([0, 9, 2, 9, 3, 9], np.uint32)[::2]
    unaligned = np.frombuffer(b"x" + np.array([2.0], np.float64).tobytes(), np.float64, offset=1)
    assert not unaligned.flags.aligned
    scores = np.zeros(4)
    values = np.ones(6, np.float32)[::2]
    kernel.accumulate_weighted(rows, values, np.zeros(1, np.int64), np.full(1, 3), unaligned, scores)
    assert scores.tolist() == [2.0, 0.0, 2.0, 2.0]
    assert kernel.select(scores[::-1], None, None, 2)[0].tolist() == [0, 1]


def test_no_lists_change_nothing(kernel):
    scores = np.ones(3)
    none = np.zeros(0, np.int64)
    kernel.accumulate_weighted(np.zeros(0, np.uint16), np.zeros(0, np.float32), none, none, np.zeros(0), scores)
    assert scores.tolist() == [1.0, 1.0, 1.0]


def test_mismatched_arrays_are_named(kernel):
    rows, at, weights = np.zeros(2, np.uint16), np.zeros(1, np.int64), np.ones(1)
    values = np.ones(2, np.float32)
    with pytest.raises(InvalidTypeError, match="rows must be uint16 or uint32, got int64"):
        kernel.accumulate_weighted(rows.astype(np.int64), values, at, at, weights, np.zeros(1))
    with pytest.raises(InvalidTypeError, match="weights must be float64, got float32"):
        kernel.accumulate_weighted(rows, values, at, at, weights.astype(np.float32), np.zeros(1))
    with pytest.raises(InvalidTypeError, match="scores must be float64, got float32"):
        kernel.accumulate_weighted(rows, values, at, at, weights, np.zeros(1, np.float32))
    with pytest.raises(InvalidInputError, match="equally long, got 1, 1 and 2"):
        kernel.accumulate_weighted(rows, values, at, at, np.ones(2), np.zeros(1))
    with pytest.raises(InvalidInputError, match="values must be as long as rows, got 1 and 2"):
        kernel.accumulate_weighted(rows, np.ones(1, np.float32), at, at, weights, np.zeros(1))
    with pytest.raises(InvalidInputError, match="factors must be as long as scores, got 2 and 3"):
        kernel.select(np.zeros(3), np.ones(2), None, 1)
    with pytest.raises(InvalidTypeError, match="allowed must be bool, got uint8"):
        kernel.select(np.zeros(3), None, np.ones(3, np.uint8), 1)
    with pytest.raises(InvalidInputError, match="k must be at least 0, got -1"):
        kernel.select(np.zeros(3), None, None, -1)


# select


@pytest.mark.parametrize("k", [0, 1, 3, 5, 10, 10**12])
@pytest.mark.parametrize("mask", [None, "all", "none", "some"])
def test_select_by_hand(kernel, k, mask):
    scores = np.array([0.0, 3.0, 1.0, -2.0, 3.0, 2.0, 0.0, 1.0])
    masks = {"all": np.ones(8, bool), "none": np.zeros(8, bool), "some": np.array([1, 0, 1, 1, 1, 0, 1, 1], bool)}
    rows, values = kernel.select(scores, None, masks.get(mask), k)
    order = {"none": [], "some": [4, 2, 7]}.get(mask, [1, 4, 5, 2, 7])
    assert rows.tolist() == order[:k]
    assert values.tolist() == scores[order[:k]].tolist()
    assert (rows.dtype, values.dtype) == (np.dtype(np.int64), np.dtype(np.float32))


def test_select_from_nothing(kernel):
    for k in (0, 1, 10):
        rows, values = kernel.select(np.zeros(0), np.zeros(0), np.zeros(0, bool), k)
        assert (len(rows), len(values)) == (0, 0)
    assert len(kernel.select(np.zeros(100), None, None, 10)[0]) == 0


@pytest.mark.parametrize("k", [1, 10, 999, 1000, 1005])
def test_masses_of_ties_go_to_the_lowest_rows(kernel, k):
    scores = np.full(1000, 0.25)
    assert kernel.select(scores, None, None, k)[0].tolist() == list(range(min(k, 1000)))
    scores[[500, 7, 999]] = 0.5
    expected = [7, 500, 999, *(row for row in range(1000) if row not in (7, 500, 999))]
    assert kernel.select(scores, None, None, k)[0].tolist() == expected[:k]


def test_ties_are_decided_after_rounding_to_float32(kernel):
    scores = np.array([1.0, 1.0 + 1e-12, 1.0 + 2e-12, 1.0 - 1e-12])
    assert kernel.select(scores, None, None, 2)[0].tolist() == [0, 1]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_positive_score_that_rounds_to_zero_is_a_match(kernel, k):
    scores = np.array([0.0, 1e-60, 5e-324, 1e-50])
    rows, values = kernel.select(scores, None, None, k)
    assert rows.tolist() == [1, 2, 3][:k]
    assert values.tolist() == [0.0] * min(k, 3)
    assert kernel.select(np.array([2.0, 1.0]), np.array([0.0, 1e-300]), None, 5)[0].tolist() == [0, 1]


def test_scores_beyond_float32_are_infinite(kernel):
    with np.errstate(all="raise"):
        rows, values = kernel.select(np.array([1.0, 1e300, 1e200]), None, None, 3)
    assert rows.tolist() == [1, 2, 0]
    assert values.tolist() == [np.inf, np.inf, 1.0]


def test_factors_multiply_in_float64(kernel):
    scores, factors = np.array([1 + 2**-40, 3.0]), np.array([1 + 2**-24 - 2**-40, 0.1])
    rows, values = kernel.select(scores, factors, None, 2)
    assert rows.tolist() == [0, 1]
    assert values.tolist() == [float(np.float32(s * f)) for s, f in zip(scores.tolist(), factors.tolist(), strict=True)]


@pytest.mark.parametrize("order", ["rising", "falling", "shuffled"])
def test_select_in_adversarial_orders(compiled, order):
    scores = np.arange(1.0, 5001.0)
    if order == "falling":
        scores = scores[::-1].copy()
    elif order == "shuffled":
        np.random.default_rng(1).shuffle(scores)
    for k in (1, 7, 100, 4999):
        expected = np.argsort(-scores, kind="stable")[:k]
        assert compiled.select(scores, None, None, k)[0].tolist() == expected.tolist()
        assert_same_hits(compiled.select(scores, None, None, k), REFERENCE.select(scores, None, None, k))


score_values = st.one_of(
    st.sampled_from([0.0, -1.0, 1.0, 1.0 + 1e-12, 0.5, 1e-60, 1e12]), st.floats(-10, 1e6, allow_nan=False)
)


@settings(max_examples=150, deadline=None)
@given(
    hits=st.lists(
        st.tuples(score_values, st.sampled_from([0.0, 1.0, 0.1, 3.0, 1e-40]) | st.floats(0, 100), st.booleans()),
        max_size=40,
    ),
    with_factors=st.booleans(),
    with_mask=st.booleans(),
    k=st.integers(0, 45),
)
@example(hits=[(1.0, 1.0, True)] * 30, with_factors=False, with_mask=True, k=7)
def test_select_against_sorted(compiled, hits, with_factors, with_mask, k):
    scores = np.array([score for score, _, _ in hits], np.float64)
    factors = np.array([factor for _, factor, _ in hits], np.float64) if with_factors else None
    allowed = np.array([ok for _, _, ok in hits], bool) if with_mask else None
    expected = plain_selection(scores, factors, allowed, k)
    for each in (REFERENCE, compiled):
        rows, values = each.select(scores, factors, allowed, k)
        assert (rows.tolist(), values.tolist()) == expected


def test_concurrent_calls_give_the_same_bits(compiled):
    rng = np.random.default_rng(3)
    rows, starts, ends = make_postings(rng, 20_000, [5_000] * 20, np.uint16)
    weights = rng.random(20)

    def search(_):
        scores = np.zeros(20_000)
        compiled.accumulate_weighted(rows, np.ones(len(rows), np.float32), starts, ends, weights, scores)
        return b"".join(part.tobytes() for part in compiled.select(scores, None, None, 50))

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(search, range(40)))) == 1


# the compiled kernel's cache


def test_cache_folder_is_private_and_outside_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    folder = compile_cache_dir()
    assert folder == tmp_path / "sidr_rag" / "numba"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert compile_cache_dir() == tmp_path / "home" / ".cache" / "sidr_rag" / "numba"


def test_cache_folder_that_others_could_write_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    folder = compile_cache_dir()
    folder.chmod(0o777)
    assert compile_cache_dir() is None
    folder.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    assert compile_cache_dir() is None
    folder.unlink()
    folder.write_text("a file")
    assert compile_cache_dir() is None


def run_python(code, env=None, timeout=400):
    return subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
        cwd=REPO,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )


def test_import_loads_no_compiler():
    done = run_python(
        """
        import sys
        import sidr_rag.search, sidr_rag.search.cpu, sidr_rag.search.kernels
        sidr_rag.search.kernel_for(10)
        heavy = {"numba", "llvmlite", "torch", "transformers"} & set(sys.modules)
        assert not heavy, heavy
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_compiled_code_is_cached_in_the_users_folder_and_numba_left_as_it_was(request):
    before = set((REPO / "sidr_rag" / "search").rglob("*.nb?"))
    first, folder = request.getfixturevalue("first_build")
    second = run_python(COUNTING_HITS, {"XDG_CACHE_HOME": str(folder), "NUMBA_CACHE_DIR": ""})
    assert (first.stdout.strip(), first.stderr) == ("0", "")
    assert (second.stdout.strip(), second.stderr) == ("11", "")
    if sys.platform == "linux":
        assert list((folder / "sidr_rag" / "numba").rglob("*.nbc"))
    assert set((REPO / "sidr_rag" / "search").rglob("*.nb?")) == before


@pytest.mark.parametrize("fault", ["no folder", "damaged"])
def test_it_compiles_without_a_usable_cache(first_build, tmp_path, fault):
    code = """
    import numpy as np
    from sidr_rag.search.cpu import NumbaKernel
    print(NumbaKernel().select(np.array([1.0, 2.0]), None, None, 1)[0].tolist())
    """
    env = {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path), "NUMBA_CACHE_DIR": "", **PLAIN_CODE}
    if fault == "no folder":
        env["XDG_CACHE_HOME"] = env["HOME"] = str(tmp_path / "file")
        (tmp_path / "file").write_text("in the way")
    else:
        shutil.copytree(first_build[1], tmp_path, dirs_exist_ok=True)
        for file in tmp_path.rglob("*.nb?"):
            file.write_bytes(b"damaged")
    done = run_python(code, env)
    assert (done.stdout.strip(), done.stderr) == ("[1]", "")


def test_a_switched_off_compiler_is_an_error_of_the_kernel_and_numpy_for_auto():
    code = """
    from sidr_rag.errors import InvalidInputError
    from sidr_rag.search import kernel_for, warm_up
    assert warm_up() is False
    assert kernel_for(10**7).name == "numpy"
    try:
        kernel_for(10, prefer="numba")
    except InvalidInputError as error:
        print(error)
    """
    done = run_python(code, {"NUMBA_DISABLE_JIT": "1"})
    assert "NUMBA_DISABLE_JIT" in done.stdout
    assert "use prefer='auto' or 'numpy'" in done.stdout
    assert done.stderr == ""


# choosing and loading


def test_explicit_choices():
    assert kernel_for(10**9, prefer="numpy").name == "numpy"
    assert kernel_for(1, prefer="numba").name == "numba"
    assert warm_up() is True
    assert kernel_for(10**9).name == "numba"
    with pytest.raises(InvalidInputError, match="prefer must be 'auto', 'numpy' or 'numba', got 'gpu'"):
        kernel_for(1, prefer="gpu")


def test_small_stores_never_start_the_compiler_and_large_ones_do_not_wait():
    done = run_python(
        f"""
        import threading
        from sidr_rag.search import kernel_for, warm_up
        assert kernel_for({COMPILED_FROM_ROWS - 1}).name == "numpy"
        assert threading.active_count() == 1
        assert kernel_for({COMPILED_FROM_ROWS}).name == "numpy"
        assert threading.active_count() == 2
        assert warm_up(wait=True)
        assert kernel_for({COMPILED_FROM_ROWS}).name == "numba"
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


class SlowBuild:
    """Stands in for the compiler: a few steps, each as long as the test wants."""

    def __init__(self, step_s=0.05, steps=5, error=None):
        self.step_s, self.steps, self.error = step_s, steps, error
        self.calls = self.steps_begun = 0
        self.at_work = threading.Event()

    def __call__(self, pause):
        self.calls += 1
        for _ in range(self.steps):
            pause()
            self.steps_begun += 1
            self.at_work.set()
            time.sleep(self.step_s)
        if self.error:
            raise self.error
        return NumpyKernel()


def test_many_threads_build_one_kernel():
    build = SlowBuild()
    loader = KernelLoader(build)
    assert loader.get() is None
    with ThreadPoolExecutor(8) as pool:
        kernels = list(pool.map(lambda _: loader.wait(), range(8)))
    assert build.calls == 1
    assert kernels[0] is not None
    assert all(each is kernels[0] for each in kernels)
    assert loader.get() is loader.ready() is kernels[0]


def test_failure_is_final_and_logged_once(caplog):
    build = SlowBuild(error=OSError("no such library"))
    loader = KernelLoader(build)
    with caplog.at_level(logging.DEBUG, logger="sidr_rag"):
        assert loader.wait() is None
        assert loader.get() is None
        assert loader.wait() is None
    assert build.calls == 1
    assert loader.failure == "OSError: no such library"
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.DEBUG


def test_stop_ends_a_build_at_its_next_step():
    build = SlowBuild(step_s=0.01, steps=1000)
    loader = KernelLoader(build)
    loader.get()
    assert build.at_work.wait(60)
    loader.stop()
    assert not loader._thread.is_alive()
    assert build.steps_begun < 1000
    assert loader.wait() is None


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")


def fork_and_check(loader, check):
    """Fork as the interpreter would with the loader's hooks; the child's verdict is its exit status."""
    loader.before_fork()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(120)
            loader.after_fork_in_child()
            status = 0 if check(loader) else 2
        finally:
            os._exit(status)
    loader.after_fork_in_parent()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_during_a_build_builds_its_own():
    build = SlowBuild(step_s=0.1)
    loader = KernelLoader(build)
    loader.get()
    assert build.at_work.wait(60)
    assert fork_and_check(loader, lambda child: child.ready() is None and child.wait() is not None) == 0
    assert loader.wait() is not None
    assert build.calls == 1


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_in_the_middle_of_a_step_does_without(monkeypatch):
    monkeypatch.setattr(sys.modules["sidr_rag.search.kernels"], "_FORK_WAIT_S", 0.01)
    build = SlowBuild(step_s=1.0, steps=1)
    loader = KernelLoader(build)
    loader.get()
    assert build.at_work.wait(60)
    assert fork_and_check(loader, lambda child: child.wait() is None and "forked" in child.failure) == 0
    assert loader.wait() is not None


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_ready_kernel_survives_a_fork():
    loader = KernelLoader(SlowBuild(step_s=0.0))
    kernel = loader.wait()
    assert fork_and_check(loader, lambda child: child.get() is kernel) == 0


@needs_fork
@pytest.mark.parametrize(("cache", "delay_s"), [("filled", 0.0), ("filled", 0.1), ("filled", 0.4), ("empty", 0.7)])
def test_forking_while_the_real_compiler_loads(first_build, tmp_path, cache, delay_s):
    done = run_python(
        f"""
        import os, signal, time, warnings
        import numpy as np
        from sidr_rag.search import kernel_for, warm_up
        warnings.simplefilter("ignore", DeprecationWarning)
        kernel_for(10**6)
        time.sleep({delay_s})
        child = os.fork()
        signal.alarm(300)
        assert warm_up(wait=True)
        rows = kernel_for(10**6).select(np.array([1.0, 3.0, 2.0]), None, None, 2)[0]
        assert kernel_for(10**6).name == "numba" and rows.tolist() == [1, 2]
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """,
        {"XDG_CACHE_HOME": str(first_build[1] if cache == "filled" else tmp_path), "NUMBA_CACHE_DIR": "", **PLAIN_CODE},
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2, 0.35, 0.5, 0.8])
def test_exit_while_the_compiler_loads_is_quiet(tmp_path, delay_s):
    done = run_python(
        f"""
        import time
        from sidr_rag.search import kernel_for
        kernel_for(10**6)
        time.sleep({delay_s})
        print("done")
        """,
        {"XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": "", **PLAIN_CODE},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_user_given_numba_cache_folder_is_respected(tmp_path):
    env = {"NUMBA_CACHE_DIR": str(tmp_path), **PLAIN_CODE}
    done = run_python("from sidr_rag.search.cpu import NumbaKernel; NumbaKernel()", env)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.rglob("*.nbc"))


def test_no_cache_writes_nothing(tmp_path):
    done = run_python(
        """
        from sidr_rag.search import compiling
        from sidr_rag.search.cpu import NumbaKernel
        compiling.compile_cache_dir = None  # calling it would be an error
        print(NumbaKernel(cache=False).name)
        """,
        {"XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": "", **PLAIN_CODE},
    )
    assert (done.stdout, done.stderr) == ("numba\n", "")
    assert list(tmp_path.iterdir()) == []
