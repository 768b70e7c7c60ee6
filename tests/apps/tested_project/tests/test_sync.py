import pytest
from shop.checkout import sign_up
from shop.tasks import app, send_mail

from tidegate import ArgumentsError
from tidegate.testing import KitError


def test_a_sign_up_sends_a_welcome_mail(tidegate_kit):
    sign_up("ada@example.org")
    tidegate_kit.assert_enqueued(send_mail, args=("ada@example.org", "Welcome"), queue="mail", count=1)


def test_the_mail_of_a_sign_up_is_sent(tidegate_kit):
    sign_up("ada@example.org")
    assert tidegate_kit.drain_sync().succeeded == 1
    tidegate_kit.assert_enqueued(send_mail, state="succeeded")


def test_a_wrong_address_is_tried_three_times(tidegate_kit):
    sign_up("ada")
    drained = tidegate_kit.advance_sync(hours=1)
    assert (drained.retrying, drained.dead) == (2, 1)
    assert [str(run.error) for run in drained.runs] == ["ada is no address"] * 3


@pytest.mark.tidegate(mode="inline")
def test_an_inline_mail_is_sent_at_once(tidegate_kit):
    handle = send_mail.enqueue_sync("ada@example.org", "Hello")
    assert handle.result_sync(timeout=0) == "Hello to ada@example.org"
    with pytest.raises(ArgumentsError):
        send_mail.enqueue_sync("ada@example.org", object())


def test_nothing_is_sent_to_nobody(tidegate_kit):
    tidegate_kit.assert_not_enqueued()
    with pytest.raises(KitError, match="Nothing was enqueued at all"):
        tidegate_kit.assert_enqueued(send_mail)
    assert "tidegate-test" in app.url
