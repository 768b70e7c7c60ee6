"""What cannot work is refused where it is declared, by name and with a fix, not when a task runs."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from tidegate import (
    NO_LIMIT,
    ConfigError,
    Exponential,
    Fixed,
    OptionError,
    Polynomial,
    Tidegate,
    discard,
    on,
)
from tidegate.domain.spec import Rule
from tidegate.internals import core_of


@pytest.fixture
def app(tmp_path) -> Tidegate:
    return Tidegate(f"sqlite:///{tmp_path}/q.db")


@dataclass
class OwnBackoff:
    """A policy of the user's own, as some queues have them."""

    def delay(self, attempt: int) -> float:
        return 5.0 * attempt


class Derived(Fixed):
    """A way around the checks of its base."""

    def __init__(self) -> None:
        object.__setattr__(self, "seconds", "5s")


@pytest.mark.parametrize(
    "options",
    [
        {"backoff": "soon"},
        {"backoff": -3},
        {"backoff": math.nan},
        {"backoff": OwnBackoff()},
        {"backoff": Derived()},
        {"backoff": lambda attempt: 5},
        {"backoff": Fixed},
        {"retry": 3},
        {"retry": "timeout"},
        {"retry": [3]},
        {"retry": ["never heard of"]},
        {"retry": ValueError},
        {"name": ""},
        {"name": "two\nlines"},
        {"queue": ""},
        {"priority": 1.5},
        {"upstream": "unknown"},
        {"upstream": 5},
        {"rate_limit": 50},
        {"rate_limit": "50/year"},
        {"timeout": None},
        {"timeout": 0},
        {"timeout": "soon"},
        {"total_timeout": None},
        {"total_timeout": 0},
        {"deadline": -1},
        {"deadline": datetime(2100, 1, 1, tzinfo=UTC)},
        {"max_attempts": "3"},
        {"on_unknown": "maybe"},
        {"on_crash": None},
        {"runs_in": "moon"},
        {"memory_limit": "lots"},
        {"cancel_grace": -1},
    ],
)
def test_a_setting_of_a_task_function_that_cannot_work_is_refused_when_declared(app, options):
    with pytest.raises(OptionError) as caught:

        @app.task(**({"name": "f"} | options))
        def f() -> None: ...

    assert caught.value.fix
    assert not core_of(app).functions


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(-3),
        lambda: Fixed(math.inf),
        lambda: Fixed(math.nan),
        lambda: Fixed("soon"),
        lambda: Fixed(None),
        lambda: Exponential(base=math.nan),
        lambda: Exponential(base=-1),
        lambda: Exponential(cap="never"),
        lambda: Exponential(factor=0.5),
        lambda: Exponential(factor="2"),
        lambda: Exponential(jitter="some"),
        lambda: Polynomial(power=-1),
        lambda: Polynomial(plus=math.nan),
        lambda: on(ValueError, wait=-1),
        lambda: on(ValueError, wait=OwnBackoff()),
        lambda: on(ValueError, attempts=0),
        lambda: on(ValueError, attempts=1.5),
        lambda: on(3),
        lambda: discard("never heard of"),
        lambda: Rule(ValueError, wait=OwnBackoff()),
    ],
)
def test_a_wait_or_a_rule_that_cannot_work_is_refused_when_made(make):
    with pytest.raises(OptionError) as caught:
        make()
    assert caught.value.fix


def test_a_number_for_backoff_means_fixed_and_an_exception_class_means_on_it(app):
    @app.task(name="f", backoff=30, retry=[ValueError, "timeout", discard(KeyError)])
    def f() -> None: ...

    assert f.spec.backoff == Fixed(30)
    assert f.spec.rules == (on(ValueError), on("timeout"), discard(KeyError))


@pytest.mark.parametrize("register", ["on_start", "on_child_start", "on_stop", "classifier"])
def test_a_hook_that_cannot_be_called_is_refused(app, register):
    with pytest.raises(OptionError, match=register):
        getattr(app, register)("open_clients")


def plain(number: int) -> int:
    return number


class Callable:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "printed"),
    [
        (functools.partial(plain, 1), "functools.partial"),
        (Callable(), "not a Python function but a Callable"),
        (Callable, "a class"),
        (len, "not a Python function"),
        (functools.lru_cache(plain), "not a Python function"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"name": "f"}])
def test_what_is_no_plain_function_is_refused_in_clear_text(app, function, printed, options):
    with pytest.raises(ConfigError, match=printed) as caught:
        app.task(**options)(function) if options else app.task(function)
    assert "plain `def`" in caught.value.fix


def test_two_functions_of_one_name_are_refused_with_both_places(app):
    @app.task(name="f")
    def first() -> None: ...

    with pytest.raises(ConfigError) as caught:

        @app.task(name="f")
        def second() -> None: ...

    lines = [first.function.__code__.co_firstlineno, first.function.__code__.co_firstlineno + 5]
    assert [f"{__file__}:{line}" in caught.value.message for line in lines] == [True, True]


SCRIPT = "from tidegate import Tidegate\napp = Tidegate('sqlite:///q.db')\n@app.task\ndef f(): ...\n"


@pytest.mark.parametrize(("arguments", "stdin"), [(["-"], SCRIPT), ([], SCRIPT), (["-c", SCRIPT], "")])
def test_a_script_that_is_no_file_cannot_declare_what_no_worker_could_import(tmp_path, arguments, stdin):
    command = [sys.executable, *arguments]
    done = subprocess.run(command, input=stdin, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "no worker can import them" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 60, "deadline": 30},
        {"delay": "1h", "deadline": "1h"},
        {"delay": timedelta(days=1), "deadline": "1h"},
    ],
)
def test_a_deadline_before_the_delay_is_refused(app, options):
    @app.task(name="f")
    def f() -> None: ...

    with pytest.raises(OptionError, match="comes before the task is due"):
        f.using(**options)


def test_a_whole_task_has_half_an_hour_unless_declared_otherwise_and_an_hour_with_an_upstream(app):
    app.upstream("openai")

    @app.task(name="f")
    def f() -> None: ...

    @app.task(name="g", upstream="openai")
    def g() -> None: ...

    @app.task(name="h", total_timeout=NO_LIMIT)
    def h() -> None: ...

    assert [each.spec.total_timeout for each in (f, g, h)] == [1800, 3600, NO_LIMIT]
    assert {each.spec.deadline for each in (f, g, h)} == {NO_LIMIT}


def test_a_declared_deadline_holds_for_each_task_unless_one_names_its_own(app):
    @app.task(name="f", deadline="10m")
    def f() -> None: ...

    moment = datetime(2100, 1, 1, tzinfo=UTC)
    tasks = [f.prepare(), f.using(deadline="5m").prepare(), f.using(deadline=NO_LIMIT).prepare()]
    by_moment = f.using(deadline=moment).prepare().new_task

    assert [task.new_task.deadline_seconds for task in tasks] == [600, 300, None]
    assert (by_moment.deadline_seconds, by_moment.deadline_at) == (None, moment.timestamp())


async def test_a_deadline_that_is_past_or_has_no_time_zone_is_refused(app):
    @app.task(name="f")
    def f() -> None: ...

    with pytest.raises(OptionError, match="has no time zone"):
        f.using(deadline=datetime(2100, 1, 1))
    with pytest.raises(OptionError, match="the deadline passed"):
        await f.using(deadline=datetime(2020, 1, 1, tzinfo=UTC)).enqueue()
    await app.aclose()


async def test_a_deadline_before_the_due_time_is_refused_everywhere(app):
    @app.task(name="f")
    def f() -> None: ...

    late = f.using(run_at=datetime.now(UTC) + timedelta(hours=2), deadline="1h")
    in_time = f.using(run_at=datetime.now(UTC) + timedelta(hours=2), deadline="3h")

    for entrance in (
        lambda: late.enqueue(),
        lambda: app.enqueue_many([in_time.prepare(), late.prepare()]),
        lambda: app.enqueue_many(late.prepare() for _ in range(5_001)),
    ):
        with pytest.raises(OptionError, match="comes before the task is due"):
            await entrance()
    assert (await in_time.enqueue()).created
    await app.aclose()


@pytest.mark.parametrize("name", ["delay", "send", "apply_async", "kiq"])
def test_a_method_of_another_queue_is_refused_with_the_one_of_this(app: Tidegate, name: str) -> None:
    @app.task(name="t")
    def task() -> None: ...

    with pytest.raises(AttributeError, match=rf"no attribute '{name}' → write .*enqueue_sync") as refused:
        getattr(task, name)
    assert refused.value.name == name


def test_a_misspelt_method_of_a_task_function_is_an_ordinary_attribute_error(app: Tidegate) -> None:
    @app.task(name="t")
    def task() -> None: ...

    with pytest.raises(AttributeError, match=r"no attribute 'enqeue'$"):
        _ = task.enqeue
    assert not hasattr(task, "__get__")
