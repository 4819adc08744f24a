"""What goes wrong between a command and the API server of a cluster, in words of the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class ClusterUnreachableError(Exception):
    """The API server cannot be asked. The message is one sentence."""


@contextmanager
def explain_failures() -> Iterator[None]:
    """Raise ClusterUnreachableError for what the client of a cluster raises in the block."""
    import kubernetes  # most commands do without, and it takes a second to load
    from urllib3.exceptions import HTTPError

    # The types that it states are not those that its own calls keep.
    config: Any = kubernetes.config
    models: Any = kubernetes.client
    try:
        yield
    except config.ConfigException as error:
        raise ClusterUnreachableError(f"the kubeconfig cannot be used: {error}") from None
    except models.ApiException as error:
        raise ClusterUnreachableError(f"the API server refused: {error.status} {error.reason}") from None
    except (HTTPError, ConnectionError, TimeoutError) as error:
        raise ClusterUnreachableError(f"the API server does not answer: {type(error).__name__}") from None
