"""`docs/reference/http-api.md` and `docs/reference/problems.md` say what the API does."""

from __future__ import annotations

import json
import re

from pages import ROOT, table_rows

from tidegate import Tidegate
from tidegate.domain.access import Role
from tidegate.web import WebSettings, create_app
from tidegate.web.problems import PROBLEM_TYPES
from tidegate.web.tokens import PROTOCOL

API = ROOT / "docs" / "reference" / "http-api.md"
PROBLEMS = ROOT / "docs" / "reference" / "problems.md"


def test_every_type_of_problem_has_its_section_with_the_text_of_the_code():
    text = PROBLEMS.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## ([\w-]+)\n\n(.*?)(?=^## |\Z)", text, re.M | re.S))

    assert list(sections) == sorted(PROBLEM_TYPES)
    for slug, kind in PROBLEM_TYPES.items():
        assert sections[slug].strip() == f"**{kind.status}** {kind.title}.\n\n**Fix**: {kind.fix}"


def test_every_type_of_problem_is_used():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/tidegate/web").rglob("*.py"))

    assert [slug for slug in PROBLEM_TYPES if f'"{slug}"' not in source] == []


def test_every_route_is_on_the_page_with_its_roles(tmp_path):
    protected = create_app(Tidegate(f"sqlite:///{tmp_path}/queue.db")).state.protected
    rows = {(method, path.strip("`")): who for method, path, who, _ in table_rows(API, under="## Routes")[1:]}

    assert set(rows) == set(protected.access_rules) | protected.open_routes
    for key, access_rule in protected.access_rules.items():
        roles, _, tenants = rows[key].partition("; ")
        wanted = {role.value for role in Role} if roles == "all" else set(roles.split(", "))
        assert wanted == set(access_rule.roles), key
        assert (tenants == "all tenants") == access_rule.all_tenants, key


def test_the_openapi_document_has_the_declared_responses_of_each_route_and_no_other(tmp_path):
    document = create_app(Tidegate(f"sqlite:///{tmp_path}/queue.db")).openapi()
    submit_many = document["paths"]["/api/v1/tasks/batch"]["post"]

    assert list(submit_many["responses"]) == ["202", "default"]
    assert "Successful Response" not in json.dumps(document)


def test_the_limits_on_the_page_are_those_of_the_code():
    text = API.read_text(encoding="utf-8")
    limits = WebSettings()

    assert limits.body_limit == 1.25 * 2**20
    assert limits.batch_body_limit == 8 * 2**20
    assert f"{limits.depth_limit} levels of nesting" in text
    assert f"({limits.wait_limit:g} at most)" in text
    assert f"{limits.waiters} places for waiting requests" in text
    assert f"Every {limits.heartbeat:g} s a comment" in text
    assert f"nothing for {limits.send_limit:g} s" in text
    assert f"{limits.page_limit} at most" in text
    assert f"after\n{limits.token_memory:g} s" in text
    assert f"`{PROTOCOL}`" in text
