"""A web page as the answer to a model call: the address is wrong, and a retry does not help."""

from __future__ import annotations

import gzip

import httpx2
import openai
import pytest
from permits_in_memory import MemoryPermitSource
from transport_clients import ASKED, URL, Network, Pieces, client_with_transport, ok

from tidegate.domain.failure import Reason, Verdict
from tidegate.policy.classify import classify

pytestmark = pytest.mark.anyio
PAGE = b"<!doctype html><html><body>Welcome to Acme</body></html>"


def page(**headers):
    headers = {"content-type": "text/html; charset=utf-8", **headers}
    content = gzip.compress(PAGE) if "content-encoding" in headers else PAGE
    return httpx2.Response(200, headers=headers, stream=Pieces(content))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("headers", [{}, {"content-encoding": "gzip"}], ids=["plain", "gzip"])
async def test_an_sdk_gets_a_permanent_error_that_names_the_address_for_a_web_page(stream, headers):
    permits = MemoryPermitSource()
    http = client_with_transport(Network(page(**headers)), permits)
    async with openai.AsyncOpenAI(
        api_key="sk-own", base_url="https://user:pw@api.acme.test/?token=s3cr3t", http_client=http
    ) as client:
        with pytest.raises(openai.NotFoundError) as raised:
            await client.chat.completions.create(model="m", messages=[], stream=stream)
    failure = classify(raised.value, now=0.0).failure
    assert (failure.verdict, failure.reason) == (Verdict.PERMANENT, Reason.NOT_FOUND)
    assert "api.acme.test" in failure.message
    assert "base_url" in failure.message
    assert "s3cr3t" not in failure.message
    assert "pw" not in failure.message
    assert permits.only.end.failure.reason is Reason.NOT_FOUND
    assert permits.only.end.is_in_doubt is False


async def test_a_model_call_that_is_redirected_to_a_page_is_the_same_error():
    moved = httpx2.Response(301, headers={"location": "https://www.acme.test/"})
    async with client_with_transport(Network(moved, page())) as http:
        response = await http.post(URL, json=ASKED, follow_redirects=True)
    assert response.status_code == 404
    assert "www.acme.test" in response.json()["error"]["message"]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_pages_of_other_services_are_passed_on(method):
    async with client_with_transport(Network(page())) as http:
        response = await http.request(method, "https://render.test/pages", json={"address": "x"})
    assert (response.status_code, response.content) == (200, PAGE)


async def test_a_response_that_is_not_a_page_is_passed_on():
    async with client_with_transport(Network(ok())) as http:
        assert (await http.post(URL, json=ASKED)).status_code == 200
