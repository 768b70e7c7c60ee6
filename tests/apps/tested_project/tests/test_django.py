from django.test import TestCase
from shop.checkout import buy
from shop.models import Order
from shop.tasks import app, send_mail, ship

from tidegate.testing import KitMixin


class CheckoutTest(KitMixin, TestCase):
    tidegate_app = app

    def test_an_order_is_shipped_after_its_commit(self):
        with self.captureOnCommitCallbacks(execute=True):
            order = buy("ada@example.org")
            self.kit.assert_not_enqueued(ship)
        self.kit.assert_enqueued(ship, args=(order,))
        self.assertEqual(self.kit.drain_sync(raise_on_failure=True).succeeded, 2)
        self.assertEqual(Order.objects.get(pk=order).state, "shipped")
        self.kit.assert_enqueued(send_mail, args={"to": "ada@example.org"})

    def test_a_refused_card_ships_nothing(self):
        with self.assertRaises(RuntimeError), self.captureOnCommitCallbacks(execute=True):
            buy("ada@example.org", fails=True)
        self.kit.assert_not_enqueued()
        self.assertEqual(Order.objects.count(), 0)

    def test_a_task_that_fails_leaves_the_transaction_of_the_test_usable(self):
        ship.enqueue_sync(404)
        (run,) = self.kit.drain_sync().failures
        self.assertIsInstance(run.error, Order.DoesNotExist)
        self.assertEqual(Order.objects.count(), 0)
