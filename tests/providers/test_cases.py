"""Every recorded case: what providers answer and SDKs raise, and what it means."""

import pytest

from stand_ins import CASES, NOW, complaint, exception_of, header_list
from tidegate.policy.classify import classify
from tidegate.providers.packs import GENERAL, PACKS, pack_for
from tidegate.providers.understand import understand_answer
from tidegate.providers.waits import LONGEST_WAIT_SECONDS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_case_is_understood(case, record_property):
    record_property("provider", case["provider"])
    failure = classify(exception_of(case), now=NOW, provider=case["provider"]).failure
    assert complaint(case, failure, bound=LONGEST_WAIT_SECONDS) == ""


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["kind"] == "http"], ids=lambda case: case["id"]
)
def test_a_response_means_the_same_as_the_exception_made_of_it(case):
    answer = understand_answer(
        case["status"], header_list(case), case["body"], now=NOW, provider=case["provider"]
    )
    if answer is None:
        assert case["expect"]["verdict"] == "unknown" or "unknown" in case["expect"]["verdict_ok"]
    elif answer.verdict != "permanent":
        assert complaint(case, answer) == ""
    else:
        assert answer.verdict in [case["expect"]["verdict"], *case["expect"].get("verdict_ok", ())]


def test_there_are_as_many_cases_as_expected():
    assert len(CASES) == 451


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ({"host": "api.openai.com"}, "openai"),
        ({"host": "eu.api.openai.com"}, "openai"),
        ({"host": "acme.openai.azure.com"}, "azure"),
        ({"host": "us-central1-aiplatform.googleapis.com"}, "vertex"),
        ({"host": "bedrock-runtime.eu-west-1.amazonaws.com"}, "bedrock"),
        ({"host": "OpenRouter.ai"}, "openrouter"),
        ({"host": "notopenai.com"}, "general"),
        ({"host": "127.0.0.1"}, "general"),
        ({"modules": ["groq"]}, "groq"),
        ({"modules": ["acme", "google"]}, "gemini"),
        ({"provider": "dashscope"}, "dashscope"),
        ({"provider": "Openai-EU"}, "openai"),
        ({"provider": "azure-openai"}, "azure"),
        ({"provider": "openai/gpt-5"}, "openai"),
        ({"provider": "vertex_ai"}, "vertex"),
        ({"provider": "render-farm"}, "general"),
        ({"provider": ""}, "general"),
    ],
    ids=str,
)
def test_a_pack_is_found_by_host_module_or_name(known, name):
    assert pack_for(**known).name == name


def test_the_host_takes_precedence_over_the_sdk_and_the_sdk_over_the_declaration():
    assert pack_for(host="api.groq.com", modules=["cohere"], provider="openai").name == "groq"
    assert pack_for(modules=["cohere"], provider="groq").name == "cohere"
    # Everyone's models are called through OpenAI's SDK, so its module tells nothing.
    assert pack_for(modules=["openai"], provider="dashscope").name == "dashscope"
    assert pack_for(modules=["openai"]) is GENERAL


@pytest.mark.parametrize("pack", PACKS, ids=lambda pack: pack.name)
def test_a_pack_is_found_by_each_of_its_names(pack):
    assert all(pack_for(provider=name) is pack for name in (pack.name, *pack.aliases))
    assert all(pack_for(host=host) is pack for host in pack.hosts)
    assert all(pack_for(modules=[module]) is pack for module in pack.modules)
