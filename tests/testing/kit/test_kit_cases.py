"""Test cases of `unittest` with a kit around each test."""

from __future__ import annotations

import unittest

from kit_app import app, double, greet

from tidegate import State
from tidegate.testing import AsyncKitTestCase, Kit, KitMixin, KitTestCase


def run(case: type[unittest.TestCase]) -> unittest.TestResult:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result


def test_a_test_case_has_a_kit_from_its_set_up_to_its_clean_ups() -> None:
    seen: list[int] = []

    class Case(KitTestCase):
        tidegate_app = app

        def setUp(self) -> None:
            double.enqueue_sync(1)
            self.addCleanup(lambda: seen.append(len(self.kit.enqueued())))

        def test_one(self) -> None:
            assert self.kit.drain_sync().succeeded == 1

        def test_two(self) -> None:
            self.kit.assert_enqueued(double, count=1)

    assert run(Case).wasSuccessful()
    assert seen == [1, 1]


def test_an_async_test_case_drains_in_its_own_loop() -> None:
    class Case(AsyncKitTestCase):
        tidegate_app = app

        async def test_one(self) -> None:
            handle = await greet.enqueue("Ada")
            assert (await self.kit.drain()).succeeded == 1
            assert await handle.result(0) == "hello Ada"

    assert run(Case).wasSuccessful()


def test_a_test_case_may_run_its_tasks_inline() -> None:
    class Case(KitMixin, unittest.TestCase):
        tidegate_app = app
        tidegate_mode = "inline"

        def test_one(self) -> None:
            assert double.enqueue_sync(1).status_sync().state is State.SUCCEEDED

    assert run(Case).wasSuccessful()


def test_a_failing_test_case_is_reported_and_leaves_the_application_alone() -> None:
    class Case(KitTestCase):
        tidegate_app = app

        def test_one(self) -> None:
            self.kit.assert_enqueued(double)

    url = app.url
    result = run(Case)
    assert len(result.failures) == 1
    assert "Nothing was enqueued at all" in result.failures[0][1]
    assert app.url == url


def test_a_test_case_without_an_application_says_what_to_write() -> None:
    class Case(KitTestCase):
        def test_one(self) -> None:
            raise AssertionError("not reached")

    result = run(Case)
    assert len(result.errors) == 1
    assert "tidegate_app = app" in result.errors[0][1]
    with Kit(app) as kit:
        assert kit.enqueued() == []
