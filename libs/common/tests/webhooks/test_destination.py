"""Where webhooks may be sent."""

from __future__ import annotations

import pytest

from libs.common.webhooks.destination import ForbiddenUrlError, WebhookDestinations

DESTINATIONS = WebhookDestinations({"Receiver.internal", "127.0.0.1"})


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://example.com/", "not_https"),
        ("ftp://example.com/", "not_a_url"),
        ("https:///path", "not_a_url"),
        ("https://example.com:0/", "not_a_url"),
        ("https://example.com:70000/", "not_a_url"),
        ("https://example.com\\@10.0.0.1/", "not_a_url"),
        ("https://exa mple.com/", "not_a_url"),
        ("https://example.com/\r\nx: y", "not_a_url"),
        ("https://exämple.com/", "not_a_url"),
        ("https://example.com/" + "a" * 2048, "not_a_url"),
        ("https://user:word@example.com/", "credentials_or_fragment"),
        ("https://@example.com/", "credentials_or_fragment"),
        ("https://example.com/#part", "credentials_or_fragment"),
        ("https://10.0.0.1/", "address_not_public"),
        ("https://169.254.169.254/latest", "address_not_public"),
        ("https://[::1]/", "address_not_public"),
        ("https://[::ffff:10.0.0.1]/", "address_not_public"),
        ("http://127.0.0.2/", "not_https"),
    ],
)
def test_urls_that_are_refused(url: str, rule: str) -> None:
    with pytest.raises(ForbiddenUrlError) as caught:
        DESTINATIONS.parse(url)
    assert caught.value.rule == rule


def test_a_url_is_sent_to_a_checked_address_under_its_own_name() -> None:
    destination = DESTINATIONS.parse("https://Example.com.:8443/hook?a=1")
    assert destination.authority == "example.com:8443"
    assert destination.url_at("2606:4700::1111") == "https://[2606:4700::1111]:8443/hook?a=1"
    DESTINATIONS.check_addresses(destination, ["93.184.215.14", "2606:4700::1111"])
    for addresses in (["93.184.215.14", "10.0.0.1"], ["fe80::1%eth0"], ["127.0.0.1"]):
        with pytest.raises(ForbiddenUrlError):
            DESTINATIONS.check_addresses(destination, addresses)
    assert DESTINATIONS.parse("https://example.com").url_at("93.184.215.14") == "https://93.184.215.14:443/"


def test_internal_hosts_may_be_anywhere_but_at_a_metadata_service() -> None:
    destination = DESTINATIONS.parse("http://receiver.internal:8080/hook")
    DESTINATIONS.check_addresses(destination, ["127.0.0.1", "10.0.0.1"])
    with pytest.raises(ForbiddenUrlError):
        DESTINATIONS.check_addresses(destination, ["169.254.169.254"])
    assert DESTINATIONS.parse("http://127.0.0.1:9/").host == "127.0.0.1"
