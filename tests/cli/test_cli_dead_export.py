"""`tidegate dead export --as-test`: the written test passes while the fault is there, and fails once it is mended."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from cli_support import dead
from export_support import TASKS, Shop, document, store_dead

from tidegate.domain.failure import Failure, Reason, Verdict


@pytest.fixture
def shop(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(workspace.directory))
    # Compiled code is found by size and second: a module that is changed within one could stay as it was.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return Shop(workspace)


def test_a_fault_of_the_code_is_reproduced_until_it_is_mended(shop: Shop) -> None:
    task_id = shop.dies("tag", document(a=1), options={"tenant": "acme"}, words=2)
    source = shop.export(task_id[:13])
    assert 'Document(title="T", at=datetime(2026, 3, 4, tzinfo=UTC), meta={"a": 1})' in source
    assert 'tenant="acme"' in source
    assert "isinstance(run.error, KeyError)" in source
    assert shop.run_test(source) == ""
    shop.change('document.meta["tags"]', 'document.meta.get("tags", [])')
    assert 'run.reason == "unknown"' in shop.run_test(source)


FETCH_FAILED = Failure(Verdict.UNKNOWN, Reason.UNKNOWN, "'no'", "KeyError")


@pytest.mark.timeout(240)  # it starts an interpreter with pytest, which is slow on a busy machine
def test_the_written_file_is_a_pytest(shop: Shop) -> None:
    shop.write(APP_WITHOUT_UPSTREAM)
    shop.export(store_dead(shop, "fetch", "{}", FETCH_FAILED))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=shop.workspace.directory,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # it starts sooner
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert "1 passed" in done.stdout


def test_an_error_class_of_the_application_is_imported_and_any_task_name_works(shop: Shop) -> None:
    source = shop.export(shop.dies("named", text="it's me"))
    assert f"from {shop.name} import Refused, app, named" in source
    assert shop.run_test(source) == ""


def test_the_recorded_response_of_a_provider_is_scripted(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER", "refuses")
    source = shop.export(shop.dies("ask", question="why?"))
    assert '{"error": {"message": "bad model", "code": "model"}}' in source
    assert "status=400" in source
    assert 'run.message == "Error code: 400 - bad model"' in source
    assert "from openai import BadRequestError" in source
    assert shop.run_test(source) == ""
    shop.change('model="m", messages=', 'model="m", nonsense=')
    assert shop.run_test(source)


def test_a_provider_that_did_not_answer_is_scripted(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER", "silent")
    source = shop.export(shop.dies("ask", question="why?"))
    assert 'kit.upstream("openai").hangs(times=None)' in source
    assert 'run.reason == "timeout"' in source
    assert shop.run_test(source) == ""


def test_a_function_that_ran_too_long_is_stopped_in_the_test_too(shop: Shop) -> None:
    source = shop.export(shop.dies("wait_long", 30.0))
    assert "# of 0.3 s in the application" in source
    assert shop.run_test(source) == ""
    shop.change("await asyncio.sleep(seconds)", "await asyncio.sleep(0)")
    assert shop.run_test(source)


def test_a_long_timeout_is_shortened_in_the_test(shop: Shop) -> None:
    source = shop.export(shop.dies("wait_longer", 3600.0, options={"timeout": 0.3}))
    assert "wait_longer.using(max_attempts=1, timeout=5.0)" in source
    assert "# of 10 min in the application" in source
    assert shop.run_test(source) == ""


def test_a_provider_that_could_not_be_reached_is_scripted(shop: Shop) -> None:
    failure = Failure(Verdict.TRANSIENT, Reason.NETWORK, "Connection error.", "openai.APIConnectionError")
    task_id = store_dead(shop, "ask", '{"k": {"question": "why?"}}', failure, upstream="openai")
    source = shop.export(task_id)
    assert 'kit.upstream("openai").unreachable(times=None)' in source
    assert shop.run_test(source) == ""


def test_arguments_that_no_longer_decode_are_kept_in_their_stored_form(shop: Shop) -> None:
    shop.change("def old(number: int)", "def old(number: str)")
    module_before = shop.name
    (task_id,) = shop.workspace.add(function=f"{module_before}:old", args=b'{"k":{"number":7}}')
    failure = Failure(
        Verdict.PERMANENT,
        Reason.INVALID_REQUEST,
        "arguments do not fit",
        "tidegate.errors.ArgumentsError",
        evidence="arguments do not fit",
    )
    shop.workspace.work(lambda task: dead(task, failure))
    source = shop.export(task_id)
    assert f'enqueue_stored(app, "{shop.name}:old", {{"k": {{"number": 7}}}}, max_attempts=1)' in source
    assert shop.run_test(source) == ""
    shop.write(TASKS)
    assert shop.run_test(source)
    refused = shop.workspace.run("dead", "export", task_id, "--as-test", "--app", shop.workspace.app, code=4)
    assert "they fit now: redrive it" in refused.stderr


WRITTEN = """\
\"\"\"A task of {app}:ask died on {day} of openai.BadRequestError (invalid_request,
status 400).

Written by `tidegate dead export {task_id} --as-test`. It passes
while the fault is there.

Every call gets the recorded answer. If the function makes other calls before the one that
failed, script their answers first.
\"\"\"

from {app} import app, ask
from openai import BadRequestError
from tidegate.testing import Kit, blocked_network


def test_ask_fails_as_task_{short}_did() -> None:
    with Kit(app) as kit, blocked_network(["localhost"]):
        kit.upstream("openai").answers(
            {{"error": {{"message": "no such model", "code": "model_not_found"}}}},
            status=400,
            times=None,
            headers={{"x-request-id": "req_7"}},
        )
        task = ask.using(max_attempts=1, labels={{"user": "7"}}).enqueue_sync(question="why?")
        runs = kit.drain_sync().runs
    run = next(run for run in runs if run.task_id == task.id)
    # Once it is mended, replace what follows by: assert run.outcome == "succeeded"
    assert run.reason == "invalid_request"
    assert isinstance(run.error, BadRequestError)
    assert run.message == "Error code: 400 - no such model"
"""


def test_the_whole_file_reads_like_a_test_that_a_person_wrote(shop: Shop) -> None:
    failure = Failure(
        Verdict.PERMANENT,
        Reason.INVALID_REQUEST,
        "Error code: 400 - no such model",
        "openai.BadRequestError",
        status=400,
        code="model_not_found",
        request_id="req_7",
    )
    args = '{"k": {"question": "why?"}}'
    task_id = store_dead(shop, "ask", args, failure, upstream="openai", labels={"user": "7"})
    source = shop.export(task_id)
    short = task_id.replace("-", "")[:12]
    day = source.partition("died on ")[2][:10]
    expected = WRITTEN.format(app=shop.name, task_id=task_id, short=short, day=day)
    # The name of the application differs from run to run, and with it where the first lines break.
    assert source.split() == expected.split()
    assert source.partition("from ")[2] == expected.partition("from ")[2]
    assert shop.run_test(source) == "", "and it passes"


SPENT = Failure(Verdict.UNKNOWN, Reason.UNKNOWN, "spent", "KeyError")


def test_a_task_of_a_schedule_is_written_with_the_moment_of_its_tick(shop: Shop) -> None:
    labels = {"tidegate.schedule": "nightly", "tidegate.scheduled_for": "2026-03-29T01:00:00Z"}
    task_id = store_dead(shop, "refuse", '{"k": {"text": "no"}}', SPENT, labels=labels)

    source = shop.export(task_id)

    assert "enqueue_stored(" in source
    assert '"tidegate.scheduled_for": "2026-03-29T01:00:00Z"' in source
    assert "OptionError" not in shop.run_test(source)


def test_secrets_in_the_arguments_are_replaced_and_named(shop: Shop) -> None:
    args = '{"k": {"text": "use sk-proj-abcdefghijklmnopqrstuvwx1234 for it"}}'
    task_id = store_dead(shop, "refuse", args, SPENT)
    found = shop.workspace.json("dead", "export", task_id, "--as-test", "--app", shop.workspace.app)
    assert "abcdefghijkl" not in found["source"]
    assert 'text="use sk-***' in found["source"]
    assert (found["masked"], found["kind"]) == (["text"], "code")
    assert found["file"] == f"test_refuse_{task_id.replace('-', '')[:12]}.py"


def test_names_in_the_arguments_cannot_end_the_docstring(shop: Shop) -> None:
    shop.change("def old(number: int)", "def old(number: dict)")
    text = 'raise SystemExit("it ran")\n"""'
    stored = json.dumps({"k": {"number": {f'"""\n{text}': "sk-proj-abcdefghijklmnopqrstuvwx1234"}}})
    source = shop.export(store_dead(shop, "old", stored, SPENT))
    names: dict[str, Any] = {}
    exec(compile(source, "written", "exec"), names)
    assert 'Secrets were replaced by *** in: number[\'"""' in names["__doc__"]


def test_without_a_file_the_test_is_printed_and_nothing_else(shop: Shop) -> None:
    task_id = store_dead(shop, "refuse", '{"k": {"text": "x"}}', SPENT)
    result = shop.workspace.run("dead", "export", task_id, "--as-test", "--app", shop.workspace.app)
    compile(result.stdout, "stdout", "exec")
    assert result.stdout.endswith('assert run.message == "spent"\n')
    assert "read the test before you commit it" in result.stderr


def test_an_existing_file_is_not_replaced(shop: Shop) -> None:
    task_id = store_dead(shop, "refuse", '{"k": {"text": "x"}}', SPENT)
    path = shop.workspace.directory / "test_it.py"
    path.write_text("mine")
    command = ("dead", "export", task_id, "--as-test", "--app", shop.workspace.app, "--out", "test_it.py")
    assert "nothing was written" in shop.workspace.run(*command, code=4).stderr
    assert path.read_text() == "mine"
    assert "cannot write" in shop.workspace.run(*command[:-1], "no/such/place.py", code=2).stderr


def test_a_message_that_differs_from_run_to_run_is_no_assertion(shop: Shop) -> None:
    failure = Failure(Verdict.UNKNOWN, Reason.UNKNOWN, "<object at 0x7f3a2c> failed", "no.such.Error")
    source = shop.export(store_dead(shop, "refuse", '{"k": {"text": "x"}}', failure))
    assert "# In production its message was '<object at 0x7f3a2c> failed'" in source
    assert "run.message ==" not in source
    assert "isinstance" not in source, "its class cannot be imported"


def test_a_value_without_an_expression_is_kept_in_its_stored_form(shop: Shop) -> None:
    shop.change("def old(number: int)", "def old(number: list)")
    task_id = store_dead(shop, "old", '{"k": {"number": [{"$tg": "decimal", "v": "1.5"}]}}', SPENT)
    assert 'number=[Decimal("1.5")]' in shop.export(task_id)


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (Failure(Verdict.TRANSIENT, Reason.CRASH, "killed by signal 9", ""), "its process died"),
        (
            Failure(Verdict.PERMANENT, Reason.DEADLINE, "deadline passed", ""),
            "the time of the whole task ran out",
        ),
        (
            Failure(Verdict.TRANSIENT, Reason.OVERLOADED, "parked", "tidegate.errors.UpstreamParkedError"),
            "refused here, by the gate",
        ),
    ],
    ids=["crash", "deadline", "gate"],
)
def test_what_a_test_cannot_reproduce_is_refused(shop: Shop, failure: Failure, why: str) -> None:
    task_id = store_dead(shop, "refuse", '{"k": {"text": "x"}}', failure)
    refused = shop.workspace.run("dead", "export", task_id, "--as-test", "--app", shop.workspace.app, code=4)
    assert why in refused.stderr
    assert f"tidegate replay {task_id}" in refused.stderr


def test_a_response_without_an_upstream_to_play_it_is_refused(shop: Shop) -> None:
    shop.write(APP_WITHOUT_UPSTREAM)
    failure = Failure(Verdict.PERMANENT, Reason.INVALID_REQUEST, "bad", "E", status=400)
    task_id = store_dead(shop, "fetch", "{}", failure)
    refused = shop.workspace.run("dead", "export", task_id, "--as-test", "--app", shop.workspace.app, code=4)
    assert "declares no upstream to play it" in refused.stderr


APP_WITHOUT_UPSTREAM = """
from tidegate import Tidegate

app = Tidegate()

@app.task
def fetch() -> None:
    raise KeyError("no")
"""


def test_wrong_ids_functions_and_options_have_the_usual_codes(shop: Shop) -> None:
    run, app = shop.workspace.run, shop.workspace.app
    gone = store_dead(shop, "gone", "{}", SPENT)
    (waiting,) = shop.workspace.add(function=f"{shop.name}:old", args=b"{}")
    assert "no task has" in run("dead", "export", "01935c1e", "--as-test", "--app", app, code=3).stderr
    assert "not dead" in run("dead", "export", waiting, "--as-test", "--app", app, code=4).stderr
    assert "does not declare" in run("dead", "export", gone, "--as-test", "--app", app, code=3).stderr
    assert "--as-test" in run("dead", "export", gone, "--app", app, code=2).stderr
    assert "no application" in run("dead", "export", gone, "--as-test", code=78).stderr


def test_a_replay_answers_calls_as_recorded(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER", "refuses")
    task_id = shop.dies("ask", question="why?")
    sys.modules.pop(shop.name, None)
    found = shop.workspace.json("replay", task_id, "--app", shop.workspace.app, code=1)
    assert found["is_same_failure"] is True
    assert found["calls"] == [{"method": "POST", "url": "http://provider/v1/chat/completions"}]
    shown = shop.workspace.run("replay", task_id, "--app", shop.workspace.app, code=1).stdout
    assert "POST http://provider/v1/chat/completions → status 400, as recorded" in shown


def test_a_replay_names_a_call_that_has_no_recorded_answer(shop: Shop) -> None:
    task_id = store_dead(shop, "ask", '{"k": {"question": "why?"}}', SPENT)
    shown = shop.workspace.run("replay", task_id, "--app", shop.workspace.app, code=1).stdout
    assert "POST http://provider/v1/chat/completions → no recorded answer" in shown
    assert "the history has no answer for POST http://provider/v1/chat/completions" in shown


async def test_the_same_test_is_available_from_python(shop: Shop) -> None:
    task_id = await asyncio.to_thread(shop.dies, "refuse", text="x")
    written = await asyncio.to_thread(shop.export, task_id)
    app = importlib.import_module(shop.name).app
    assert await app.admin.dead_letters.as_test(task_id[:13]) == written
    assert await asyncio.to_thread(app.admin.dead_letters.as_test_sync, task_id) == written
    await app.aclose()
