"""Test cases for `unittest` and Django, with a kit around each test."""

from __future__ import annotations

import sys
import unittest
from typing import Any, ClassVar

from tidegate.app import Tidegate
from tidegate.errors import UsageError
from tidegate.testing.kit.base import Mode
from tidegate.testing.kit.kit import Kit


class KitMixin:
    """Puts a kit around each test of a test case, from before `setUp` until after the clean-ups.

    Put it before the test case's class: `class CheckoutTest(KitMixin, django.test.TestCase)`.

    Example:
        >>> class CheckoutTest(KitMixin, unittest.TestCase):  # doctest: +SKIP
        ...     tidegate_app = app
        ...
        ...     def test_checkout_sends_a_mail(self):
        ...         checkout(cart=7)
        ...         self.kit.assert_enqueued(send_mail, args={"cart": 7})
    """

    tidegate_app: ClassVar[Tidegate]
    """The application under test."""
    tidegate_mode: ClassVar[Mode] = "manual"
    """How its tasks run: `manual`, `inline` or `real`."""
    kit: Kit
    """The kit of the test that runs."""

    def run(self, result: Any = None) -> Any:
        """Run the test inside its kit."""
        if result is None or getattr(type(self), "tidegate_app", None) is not None:
            with Kit(self._app(), mode=self.tidegate_mode) as self.kit:
                return super().run(result)  # type: ignore[misc]
        result.startTest(self)  # an error here would end the whole run
        try:
            self._app()
        except UsageError:
            result.addError(self, sys.exc_info())
        result.stopTest(self)
        return result

    def _app(self) -> Tidegate:
        app: Tidegate | None = getattr(type(self), "tidegate_app", None)
        if app is None:
            raise UsageError(
                f"{type(self).__qualname__} names no application", fix="write tidegate_app = app in the class"
            )
        return app


class KitTestCase(KitMixin, unittest.TestCase):
    """A test case with a kit around each test. Set `tidegate_app` in your class."""


class AsyncKitTestCase(KitMixin, unittest.IsolatedAsyncioTestCase):
    """An async test case with a kit around each test. Set `tidegate_app` in your class."""
