"""One reader for every option: the same text forms, one form of error, wherever a value is written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tidegate import (
    ArgumentsError,
    CallTimes,
    Exponential,
    Fixed,
    Key,
    OptionError,
    Polynomial,
    Pool,
    Tidegate,
    Timings,
    UsageError,
    on,
)
from tidegate.config import load_config
from tidegate.domain.retention import Retention
from tidegate.domain.spec import Priority

FORMS: list[tuple[Any, float]] = [
    (90, 90),
    (1.5, 1.5),
    ("90", 90),
    ("1.5s", 1.5),
    ("500ms", 0.5),
    ("15m", 900),
    ("2 min", 120),
    ("1h", 3600),
    (timedelta(minutes=2), 120),
]


@pytest.fixture
def app(tmp_path) -> Tidegate:
    return Tidegate(f"sqlite:///{tmp_path}/q.db")


@pytest.mark.parametrize(("form", "seconds"), FORMS)
def test_a_duration_is_taken_in_every_form_everywhere(app, form, seconds):
    @app.task(name="f", timeout=form, total_timeout=form, deadline=form, cancel_grace=form, backoff=form)
    def f() -> None: ...

    options = (
        f.using(delay=form, deadline="1d", timeout=form, total_timeout=form, key_kept=form).prepare().new_task
    )
    upstream = app.upstream("u", requests_per_minute=5, retry_window=form, slow_start=form)

    assert (f.spec.timeout, f.spec.deadline, f.spec.cancel_grace) == (seconds, seconds, seconds)
    assert (f.spec.total_timeout, options.total_timeout_seconds) == (seconds, seconds)
    assert f.spec.backoff == Fixed(seconds)
    assert (options.delay_seconds, options.timeout_seconds, options.key_seconds) == (seconds,) * 3
    assert upstream.limits.retry_window_seconds == seconds
    assert upstream.limits.slow_start_seconds == seconds
    assert on(ValueError, wait=form).wait == Fixed(form) == Fixed(seconds)
    assert Exponential(base=form, cap=form) == Exponential(base=seconds, cap=seconds)
    assert Polynomial(plus=form, cap=form) == Polynomial(plus=seconds, cap=seconds)
    assert CallTimes(seconds=form, connect_seconds=form, idle_seconds=form).seconds == seconds
    assert Pool(poll_interval=form).poll_interval == seconds
    assert Timings(lease=form, beat=0.2, drain_grace=form).lease == seconds
    assert Retention(dead=form).dead == seconds


def test_a_size_is_taken_in_every_form_everywhere(app):
    @app.task(name="f", runs_in="process", memory_limit="2GiB")
    def f() -> None: ...

    pool = Pool(memory_limit="2GiB", memory_soft_limit="1GiB", vram_limit="20GB")

    assert f.spec.memory_limit == 2 * 2**30
    assert (pool.memory_limit, pool.memory_soft_limit, pool.vram_limit) == (2 * 2**30, 2**30, 20 * 10**9)


def test_code_and_file_take_the_same_values(tmp_path):
    (tmp_path / "tidegate.toml").write_text(
        'retry_window = "2m"\n[worker]\nlease = "1m"\n[retention]\ndead = inf\n'
        '[pools.a]\nqueues = ["llm"]\npoll_interval = "1s"\nmemory_limit = "2GiB"\nshares = {bulk = 0.2}\n'
    )

    config = load_config(tmp_path, {})

    assert config.timings == Timings(lease="1m")
    assert config.retention == Retention(dead=float("inf"))
    assert config.pools == (
        Pool("a", ["llm"], poll_interval="1s", memory_limit="2GiB", shares={"bulk": 0.2}),
    )
    assert config.pools[0].shares == {Priority.NORMAL: 0.1, Priority.BULK: 0.2}


def test_a_short_lease_shortens_the_heartbeat_in_code_too():
    assert Timings(lease="6s").beat == 2
    assert Timings(lease="5m").beat == 10


@pytest.mark.parametrize(
    ("made", "quoted"),
    [
        (lambda: Pool(queues="llm"), "pool default: queues='llm'"),
        (lambda: Pool(queues=["a", "a"]), "pool default: queues="),
        (lambda: Pool(name=""), "pool name=''"),
        (lambda: Pool(processes=1.5), "pool default: processes=1.5"),
        (lambda: Pool(concurrency=True), "pool default: concurrency=True"),
        (lambda: Pool(memory_limit="lots"), "pool default: memory_limit='lots'"),
        (lambda: Pool(memory_limit="1GB", memory_soft_limit="2GB"), "pool default: memory_soft_limit='2GB'"),
        (lambda: Pool(poll_interval="soon"), "pool default: poll_interval='soon'"),
        (lambda: Pool(strict="no"), "pool default: strict='no'"),
        (lambda: Pool(gpus=2), "pool default: gpus=2"),
        (lambda: Pool(fatal_errors="CUDA"), "pool default: fatal_errors='CUDA'"),
        (lambda: Pool(shares={"interactive": 0.5}), "pool default: shares: 'interactive'"),
        (lambda: Pool(shares={"bulk": "all"}), "pool default: shares: bulk='all'"),
        (lambda: Timings(lease="soon"), "lease='soon'"),
        (lambda: Timings(beat=0), "beat=0"),
        (lambda: Timings(promote_batch=2.5), "promote_batch=2.5"),
        (lambda: Timings(drain_grace=-1), "drain_grace=-1"),
        (lambda: CallTimes(seconds=0), "CallTimes: seconds=0"),
        (lambda: Tidegate("sqlite:///x.db", pools=[Pool(), Pool()]), "pools="),
        (lambda: Tidegate("sqlite:///x.db", pools=["default"]), "pools="),
        (lambda: Tidegate("sqlite:///x.db", timings={"lease": 5}), "timings="),
        (lambda: Tidegate("sqlite:///x.db", retry_window="soon"), "retry_window='soon'"),
        (lambda: Key("k", env="A", requests_per_minute=1.5), "requests_per_minute=1.5"),
    ],
)
def test_every_error_names_the_option_its_value_and_the_fix(made, quoted):
    with pytest.raises(OptionError) as caught:
        made()

    assert quoted in caught.value.message
    assert caught.value.fix


@pytest.mark.parametrize(
    "given",
    [
        {"queue": "x" * 9_000},
        {"tenant": "x\n" * 9_000},
        {"key": "x" * 9_000},
        {"unique": "x" * 9_000},
        {"delay": "x" * 9_000},
        {"delay": 10**5_000},
        {"priority": "x" * 9_000},
        {"labels": {"x" * 9_000: "y"}},
        {"labels": {"x": "y" * 9_000}},
        {"labels": ["y" * 9_000] * 50},
        {"max_attempts": "x" * 9_000},
        {"run_at": "x" * 9_000},
        {"queue": "\u202egnp.exe\u009b31m\ud800"},
    ],
)
def test_an_error_quotes_a_value_in_one_line_cut_and_escaped(app, given):
    @app.task(name="f")
    def f() -> None: ...

    with pytest.raises(OptionError) as caught:
        f.using(**given)

    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_a_key_that_is_no_text_is_answered_with_the_right_advice(app):
    @app.task(name="f")
    def f() -> None: ...

    with pytest.raises(OptionError, match=r"key=5 → use text, such as key=\"5\""):
        f.using(key=5)
    with pytest.raises(OptionError, match="hash it"):
        f.using(key="x" * 256)


def test_an_error_about_arguments_is_cut_too(app):
    @app.task(name="f")
    def f(number: int) -> None: ...

    for names in (["x" * 9_000], [f"name_{number}" for number in range(2_000)]):
        with pytest.raises(ArgumentsError) as caught:
            f.prepare(**dict.fromkeys(names, 1))
        assert len(str(caught.value)) < 1_200


def test_a_name_that_is_unknown_is_cut_too(app):
    for ask in (lambda: app.function("x" * 9_000), lambda: app.task(upstream="x" * 9_000)):
        with pytest.raises(UsageError) as caught:
            ask()
        assert len(str(caught.value)) < 400
