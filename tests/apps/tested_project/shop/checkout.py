from django.db import transaction

from shop.models import Order
from shop.tasks import app, remind, send_mail, ship
from tidegate.integrations.django import enqueue_on_commit


def sign_up(address: str) -> None:
    send_mail.enqueue_sync(address, "Welcome")


async def leave_cart(address: str) -> None:
    await remind.enqueue(address)


def buy(address: str, *, fails: bool = False) -> int:
    with transaction.atomic():
        order = Order.objects.create(customer=address)
        enqueue_on_commit(app, ship.prepare(order.pk))
        if fails:
            raise RuntimeError("the card was refused")
    return order.pk
