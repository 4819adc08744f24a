"""The search index: matches, filters, ranking, and updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.tool_names import ToolName
from services.registry.domain.caller import Caller, Grant
from services.registry.domain.discovery.environment import SurfaceEnvironment
from services.registry.domain.discovery.index.engine import SearchEngine
from services.registry.domain.discovery.index.ranking import cost_component, latency_component, top_rows
from services.registry.domain.discovery.query import Filters, Query
from services.registry.domain.discovery.results import Hits
from services.registry.domain.model import Deprecation, LifecycleState, ToolVersion
from services.registry.domain.publishing.manifest import MutationClass
from services.registry.tests.domain.discovery.discovery_corpus import NOW, entry_of, version

UNIT = np.eye(384, dtype="<f2")


def tool(name: str, title: str = "A tool", description: str = "Does something useful.", **more: Any) -> dict[str, Any]:
    plain = {"search_hint": "", "tags": [], "properties": {}, "mutation_class": "read_only"}
    return {"name": name, "title": title, "description": description, **plain, **more}


def index(*tools: Mapping[str, Any]) -> SearchEngine:
    made = SearchEngine()
    for each in tools:
        made.put(entry_of(version(each)))
    return made


def found(hits: Hits) -> list[str]:
    return [hit.listing.name.qualified for hit in hits.hits]


def search(held: SearchEngine, text: str = "", filters: Filters | None = None, **more: Any) -> Hits:
    return held.search(Query(text=text, filters=filters or Filters(), **more), NOW)


def test_words_are_matched_by_stem_in_every_field_and_a_name_counts_most() -> None:
    held = index(
        tool("aa.other_tool", description="Mentions refunds once, in a long text about orders and many other things."),
        tool("aa.refund_order", title="Refund an order"),
        tool("aa.hinted_tool", search_hint="refunding money"),
        tool("aa.tagged_tool", tags=["Refunds"]),
        tool("refunds.plain_tool"),
    )
    assert found(search(held, "refund"))[0] == "aa.refund_order"
    assert len(search(held, "refunds").hits) == 5
    assert found(search(held, "the refunded")) == found(search(held, "refund"))


def test_an_exact_name_is_first_whatever_else_fits() -> None:
    held = index(tool("aa.send_mail", title="Send mail"), tool("bb.send_mail", title="Send mail send mail"))
    hits = search(held, "send mail", names=(ToolName("aa", "send_mail"),))
    assert found(hits) == ["aa.send_mail", "bb.send_mail"]
    assert found(search(held, names=(ToolName("bb", "send_mail"),), only_names=True)) == ["bb.send_mail"]


def test_capabilities_match_what_is_below_them() -> None:
    held = index(
        tool("aa.sql_tool", capabilities=["data.query.sql"]),
        tool("aa.graph_tool", capabilities=["data.query.graph"]),
        tool("aa.other_tool", capabilities=["mail.send"]),
    )
    assert sorted(found(search(held, capabilities=("data.query",)))) == ["aa.graph_tool", "aa.sql_tool"]
    both = search(held, capabilities=("data.query.sql", "mail.send"))
    assert [hit.score.capability for hit in both.hits] == [0.5, 0.5]
    assert search(held, capabilities=("data.que",)).candidates == 0


def test_each_filter_says_how_many_it_removed() -> None:
    held = index(
        tool("aa.plain_tool", tags=["red"]),
        tool("aa.writing_tool", tags=["red"], mutation_class="write_irreversible"),
        tool("aa.slow_tool", tags=["red"], timeout_class="long_running"),
        tool("bb.other_tool", tags=["red"]),
        tool("aa.untagged_tool"),
        tool("aa.scoped_tool", tags=["red"], scopes=["root:all"]),
    )
    held.trust({ToolName("aa", "plain_tool"): 0.9, ToolName("bb", "other_tool"): 0.1})
    filters = Filters(
        min_trust=0.5,
        max_latency=10.0,
        mutation_classes=frozenset({MutationClass.READ_ONLY}),
        namespaces=frozenset({"aa"}),
        tags=frozenset({"RED"}),
        caller=Caller((Grant("*"),), frozenset()),
    )
    hits = search(held, filters=filters)
    assert found(hits) == ["aa.plain_tool"]
    one_each = ("namespaces", "tags", "mutation_classes", "permission", "max_latency_p95")
    assert hits.removed == dict.fromkeys(one_each, 1)
    assert (hits.tools, hits.candidates, hits.passed) == (6, 6, 1)
    costly = search(held, filters=Filters(max_cost=100.0))
    assert costly.removed == {"max_cost": 6}


def test_the_promised_time_is_the_latency_and_not_the_timeout() -> None:
    slow = {"runner": "remote", "timeout_class": "long_running", "timeout_default": "60s"}
    promise = {"execution": slow, "sla": {"latency_p50": "0.1s", "latency_p95": "0.25s"}}
    held = index(tool("aa.fast_tool", document=promise), tool("aa.slow_tool", document={"execution": slow}))
    hits = search(held, filters=Filters(max_latency=0.25))
    assert (found(hits), hits.removed) == (["aa.fast_tool"], {"max_latency_p95": 1})
    assert hits.hits[0].score.latency_p95 == 0.25
    assert found(search(held, filters=Filters(max_latency=0.2))) == []


def test_grants_decide_by_pattern_version_and_scope() -> None:
    held = index(tool("aa.one_tool"), tool("aa.two_tool"), tool("bb.one_tool", scopes=["x:y"]))

    def seen(*grants: Grant, scopes: frozenset[str] = frozenset()) -> list[str]:
        return sorted(found(search(held, filters=Filters(caller=Caller(grants, scopes)))))

    assert seen() == []
    assert seen(Grant("aa.*")) == ["aa.one_tool", "aa.two_tool"]
    assert seen(Grant("aa.one*"), Grant("bb.*"), scopes=frozenset({"x:y"})) == ["aa.one_tool", "bb.one_tool"]
    assert seen(Grant("*")) == ["aa.one_tool", "aa.two_tool"]
    assert seen(Grant("*", "^1.0")) == ["aa.one_tool", "aa.two_tool"]
    assert seen(Grant("*", "^2.0")) == []
    held.put(entry_of(version(tool("aa.late_tool"))))
    assert "aa.late_tool" in seen(Grant("aa.*"))


def test_a_token_for_a_version_finds_that_version_whatever_came_after_it() -> None:
    held, plain = SearchEngine(), tool("aa.plain_tool")
    olds = [version(plain, "1.0.0"), version(plain, "1.5.0"), version(plain, "1.9.0", LifecycleState.QUARANTINED)]
    held.put(entry_of(version(plain, "2.0.0"), *olds))
    held.put(entry_of(version(tool("bb.other_tool"), "2.0.0")))

    def seen(*grants: Grant) -> list[str]:
        caller = Filters(caller=Caller(grants, frozenset()))
        eligibility = held.assess_eligibility(Query(filters=caller), SurfaceEnvironment(), NOW)
        versions = [str(hit.head.version) for hit in search(held, filters=caller).hits]
        assert [str(hit.head.version) for hit in eligibility.useful] == versions
        assert eligibility.blocked == 2 - len(versions)
        return versions

    assert seen(Grant("aa.*", "^1")) == ["1.5.0"]
    assert seen(Grant("aa.*", "~1.0"), Grant("aa.plain*", "1.0.0")) == ["1.0.0"]
    assert seen(Grant("aa.*", "^1"), Grant("*", "^2")) == ["2.0.0", "2.0.0"]
    assert seen(Grant("aa.*", "1.9.0")) == []
    assert seen(Grant("aa.*", "^3")) == []


def test_states_and_constraints_choose_the_version() -> None:
    held = SearchEngine()
    plain = tool("aa.plain_tool")
    old, mid = version(plain, "1.0.0"), version(plain, "1.5.0", LifecycleState.DEPRECATED)
    held.put(entry_of(old, version(plain, "2.0.0", LifecycleState.QUARANTINED), mid))

    def chosen(**filters: Any) -> list[str]:
        return [str(hit.head.version) for hit in search(held, filters=Filters(**filters)).hits]

    assert chosen() == ["1.0.0"]
    assert chosen(version_constraint=">=1.1 <2") == ["1.5.0"]
    assert chosen(version_constraint="^2") == []
    quarantined = frozenset({LifecycleState.QUARANTINED})
    assert chosen(states=quarantined) == ["2.0.0"]
    assert search(held, filters=Filters(version_constraint="^3")).removed == {"version_constraint": 1}
    assert search(held, filters=Filters(version_constraint="^2")).removed == {"states": 1}


def test_meaning_counts_for_those_that_have_a_vector_and_the_others_are_counted() -> None:
    held = index(tool("aa.near_tool"), tool("aa.far_tool"), tool("aa.later_tool", title="Wanted words"))
    for name, row in (("near_tool", 0), ("far_tool", 1)):
        listing = held.listing(ToolName("aa", name))
        assert listing is not None
        held.embed(listing.name, listing.default_version.digest, UNIT[row].tobytes())
    hits = search(held, "wanted thing", vector=UNIT[0].tobytes())
    assert found(hits) == ["aa.near_tool", "aa.later_tool"]
    assert hits.without_vector == 1
    assert [name.tool_id for name, _ in held.tools_without_vector()] == ["later_tool"]
    # A vector of other content is ignored.
    held.embed(ToolName("aa", "later_tool"), "sha256:other", UNIT[0].tobytes())
    assert len(held.tools_without_vector()) == 1


def test_trust_does_not_lift_a_tool_that_does_something_else() -> None:
    held = index(
        tool("aa.refund_payment", title="Refund a payment", description="Refunds a payment."),
        tool("aa.trusted_tool", description="Lists payment methods, accounts, cards, banks and other instruments."),
    )
    held.trust({ToolName("aa", "refund_payment"): 0.1, ToolName("aa", "trusted_tool"): 1.0})
    assert found(search(held, "refund payment"))[0] == "aa.refund_payment"


def test_trust_decides_between_tools_that_fit_alike() -> None:
    held = index(tool("aa.send_mail", title="Send mail"), tool("bb.send_mail", title="Send mail"))
    held.trust({ToolName("bb", "send_mail"): 0.9, ToolName("aa", "send_mail"): 0.4})
    assert found(search(held, "send mail")) == ["bb.send_mail", "aa.send_mail"]


def test_a_misspelt_query_gets_the_nearest_names() -> None:
    held = index(tool("aa.send_email"), tool("aa.list_orders"))
    assert search(held, "sendemial").nearest[0].name.qualified == "aa.send_email"
    no_grants = Filters(caller=Caller((), frozenset()))
    assert search(held, "sendemial", no_grants).nearest == []


def test_the_index_stays_correct_over_thousands_of_updates() -> None:
    held = index(tool("aa.kept_tool", title="Kept words"))
    listing = held.listing(ToolName("aa", "kept_tool"))
    assert listing is not None
    held.embed(listing.name, listing.default_version.digest, UNIT[3].tobytes())
    held.trust({listing.name: 0.8})
    for turn in range(700):
        held.put(entry_of(version(tool("aa.changing_tool", title=f"Changing number{turn}"))))
    held.put(entry_of(version(tool("aa.gone_tool"))))
    held.drop(ToolName("aa", "gone_tool"))
    held.drop(ToolName("aa", "never_there"))
    assert len(held) == 2
    assert found(search(held, "number699")) == ["aa.changing_tool"]
    assert search(held, "number5").hits == []
    kept = search(held, "kept", vector=UNIT[3].tobytes()).hits[0]
    assert kept.score.semantic == 1.0
    assert kept.score.trust == pytest.approx(0.8)
    assert held.column_bytes < 1_000_000


def test_a_tool_whose_schema_changed_waits_for_its_new_vector_and_keeps_its_trust() -> None:
    held = index(tool("aa.plain_tool"))
    name = ToolName("aa", "plain_tool")
    listing = held.listing(name)
    assert listing is not None
    held.embed(name, listing.default_version.digest, UNIT[0].tobytes())
    held.trust({name: 0.9})
    held.put(entry_of(version(tool("aa.plain_tool"), state=LifecycleState.DEPRECATED)))
    assert held.tools_without_vector() == []
    held.put(entry_of(version(tool("aa.plain_tool", title="Another title"))))
    assert [each for each, _ in held.tools_without_vector()] == [name]
    assert search(held).hits[0].score.trust == pytest.approx(0.9)


def test_latency_and_cost_are_measured_against_what_was_allowed() -> None:
    seconds = np.array([0.0, 5.0, 10.0, 20.0], dtype=np.float32)
    assert latency_component(seconds, 10.0).tolist() == [1.0, 0.5, 0.0, 0.0]
    assert latency_component(seconds, None)[3] > 0.999
    cost = np.array([0.0, 2.0, 4.0, np.nan], dtype=np.float32)
    assert cost_component(cost, None).tolist() == [1.0, 0.5, 0.0, 0.5]
    assert cost_component(cost, 8.0).tolist() == [1.0, 0.75, 0.5, 0.5]
    assert cost_component(cost[3:], None).tolist() == [0.5]
    assert cost_component(cost[:1], None).tolist() == [1.0]


def test_past_fifty_tools_the_best_categories_are_listed_first() -> None:
    many = [tool(f"mail.mail_tool_{n}", title="Send mail", tags=["mail"]) for n in range(30)]
    many += [tool(f"data.data_tool_{n}", title="Run a query", tags=["data"]) for n in range(40)]
    held = index(*many, tool("odd.single_tool", title="Water plants", tags=["garden"]))
    eligibility = held.assess_eligibility(Query(text="mail"), SurfaceEnvironment(), NOW)
    assert eligibility.usable == 71
    assert [category.name for category in eligibility.categories][:1] == ["mail"]
    assert {category.name: category.tools for category in eligibility.categories} == {
        "mail": 30,
        "data": 40,
        "garden": 1,
    }
    assert len(eligibility.members) == 50
    assert sum(member.category == "mail" for member in eligibility.members) == 30
    few = index(*many[:50]).assess_eligibility(Query(text="mail"), SurfaceEnvironment(), NOW)
    assert (len(few.members), few.categories) == (50, [])


def test_a_deprecated_tool_past_its_date_is_no_longer_found() -> None:
    deprecated = version(tool("aa.plain_tool"), state=LifecycleState.DEPRECATED)
    standing = replace(deprecated.head.standing, deprecation=Deprecation(NOW, NOW + timedelta(days=1)))
    held = SearchEngine()
    held.put(entry_of(ToolVersion(replace(deprecated.head, standing=standing), deprecated.manifest)))
    assert len(held.search(Query(), NOW).hits) == 1
    assert held.search(Query(), NOW + timedelta(days=1)).hits == []


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([0.1, 0.4, 0.6, 1.0]), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        max_size=30,
    ),
    st.integers(1, 12),
)
def test_the_best_are_those_that_sorting_everything_would_put_first(
    rows: list[tuple[bool, float, float]], most: int
) -> None:
    exact, fits, score = (np.array([row[at] for row in rows], dtype=kind) for at, kind in enumerate((bool, "f4", "f4")))  # type: ignore[call-overload]
    # The relevances of the examples lie further apart than a band is wide.
    ordered = sorted(range(len(rows)), key=lambda at: (not rows[at][0], -rows[at][1], -rows[at][2]))
    assert top_rows(exact, fits, score, most).tolist() == ordered[:most]


def test_rank_orders_tools_of_about_the_same_relevance() -> None:
    fits = np.array([0.500, 0.495, 0.480, 0.479], dtype="f4")
    score = np.array([0.1, 0.2, 0.3, 0.9], dtype="f4")
    assert top_rows(np.zeros(4, dtype=bool), fits, score, 4).tolist() == [1, 0, 3, 2]
    assert top_rows(np.zeros(4, dtype=bool), fits, score, 1).tolist() == [1]
