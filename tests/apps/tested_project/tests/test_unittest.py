from shop.checkout import leave_cart, sign_up
from shop.tasks import app, remind, send_mail

from tidegate.testing import AsyncKitTestCase, KitTestCase


class SignUpTest(KitTestCase):
    tidegate_app = app

    def setUp(self):
        sign_up("ada@example.org")

    def test_a_sign_up_sends_a_mail(self):
        self.kit.assert_enqueued(send_mail, count=1)
        self.assertEqual(self.kit.drain_sync().succeeded, 1)


class InlineSignUpTest(KitTestCase):
    tidegate_app = app
    tidegate_mode = "inline"

    def test_a_sign_up_sends_its_mail_at_once(self):
        sign_up("ada@example.org")
        self.kit.assert_enqueued(send_mail, state="succeeded")


class CartTest(AsyncKitTestCase):
    tidegate_app = app

    async def test_a_left_cart_is_reminded_of(self):
        await leave_cart("ada@example.org")
        self.kit.assert_enqueued(remind)
        drained = await self.kit.advance(hours=30)
        self.assertEqual(drained.succeeded, 2)
