"""Failures of the cluster's client become one error, whose message is a sentence; others pass."""

from __future__ import annotations

from typing import Any

import kubernetes
import pytest
from urllib3.exceptions import MaxRetryError

from localmesh.deploy.api_failures import ClusterUnreachableError, explain_failures

CONFIG: Any = kubernetes.config
CLIENT: Any = kubernetes.client


@pytest.mark.parametrize(
    "failure",
    [
        CONFIG.ConfigException("no context"),
        CLIENT.ApiException(403, "Forbidden"),
        MaxRetryError(None, "/api"),  # type: ignore[arg-type]
        ConnectionRefusedError(),
    ],
)
def test_a_failure_of_the_client_is_explained(failure: Exception) -> None:
    with pytest.raises(ClusterUnreachableError), explain_failures():
        raise failure


def test_other_failures_pass() -> None:
    with pytest.raises(FileNotFoundError), explain_failures():
        raise FileNotFoundError
