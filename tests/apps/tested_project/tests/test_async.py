from datetime import timedelta

from shop.checkout import leave_cart
from shop.tasks import export, send_mail, summarise

from tidegate import Reason


async def test_a_left_cart_is_reminded_of_a_day_later(tidegate_kit):
    await leave_cart("ada@example.org")
    assert (await tidegate_kit.drain()).succeeded == 1
    (mail,) = tidegate_kit.assert_enqueued(send_mail, args={"subject": "Your cart"}, state="scheduled")
    assert mail.due_at - tidegate_kit.now() > timedelta(hours=23)
    assert (await tidegate_kit.advance(days=1)).succeeded == 1


async def test_a_summary_waits_for_a_rate_limit(tidegate_kit):
    openai = tidegate_kit.upstream("openai").rate_limits(retry_after=60).replies("short")
    handle = await summarise.enqueue("a long text")
    assert [run.reason for run in (await tidegate_kit.drain()).failures] == [Reason.RATE_LIMIT]
    await tidegate_kit.advance(minutes=5)
    assert await handle.result(0) == "short"
    assert len(openai.requests) == 2


async def test_a_provider_that_hangs_ends_the_task(tidegate_kit):
    tidegate_kit.upstream("openai").hangs(times=None)
    await summarise.enqueue("a long text")
    assert [run.reason for run in (await tidegate_kit.drain()).failures] == [Reason.TIMEOUT]


async def test_an_export_reports_its_pages(tidegate_kit):
    assert await export(2) == 2
    assert tidegate_kit.emitted == ["page 1", "page 2"]
    assert tidegate_kit.progress[-1].total == 2
