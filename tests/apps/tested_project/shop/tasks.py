import asyncio

import httpx2
from openai import AsyncOpenAI

from tidegate import Context, Tidegate

app = Tidegate("sqlite:////dev/null/shop.db")
openai = app.upstream("openai", requests_per_minute=600)
client = AsyncOpenAI(api_key="sk-test", http_client=httpx2.AsyncClient(transport=openai.transport()))


@app.task(queue="mail", max_attempts=3, backoff="5m")
def send_mail(to: str, subject: str) -> str:
    if "@" not in to:
        raise ValueError(f"{to} is no address")
    return f"{subject} to {to}"


@app.task
async def remind(customer: str) -> None:
    await asyncio.sleep(90)
    await send_mail.using(delay="24h").enqueue(customer, "Your cart")


@app.task(upstream=openai, max_attempts=2)
async def summarise(text: str) -> str | None:
    answer = await client.chat.completions.create(
        model="gpt-5-mini", messages=[{"role": "user", "content": text}]
    )
    return answer.choices[0].message.content


@app.task
async def export(ctx: Context, pages: int) -> int:
    for page in range(pages):
        ctx.progress(page + 1, pages)
        await ctx.emit(f"page {page + 1}")
    return pages


@app.task
def ship(order: int) -> str:
    from shop.models import Order

    found = Order.objects.get(pk=order)
    found.state = "shipped"
    found.save()
    send_mail.enqueue_sync(found.customer, "Shipped")
    return found.state
