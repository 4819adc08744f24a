"""Whether an executor has pods for tools."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from libs.common.runtime.settings import SettingsError
from libs.common.telemetry.log import Log
from services.executor.config import Settings
from services.executor.pod_wiring import build_pods


def test_there_are_none_without_a_namespace(executor_settings: Callable[..., Settings], quiet: Log) -> None:
    assert build_pods(executor_settings(), quiet) is None


async def test_they_cannot_be_used_before_they_were_probed(
    executor_settings: Callable[..., Settings], quiet: Log
) -> None:
    settings = executor_settings(POD_NAMESPACE="tools", POD_IMAGE="image:1", POD_RUNTIME_CLASS="gvisor")
    pods = build_pods(settings, quiet)
    assert pods is not None
    assert pods.name == "machine/pod-gvisor"
    assert pods.unavailable_reason()
    assert pods.bounds() is None
    await pods.close()


@pytest.mark.parametrize("wrong", [{"POD_NAMESPACE": "tools"}, {"POD_NAMESPACE": "Tools", "POD_IMAGE": "image:1"}])
def test_a_namespace_needs_a_valid_name_and_an_image(
    executor_settings: Callable[..., Settings], wrong: dict[str, str]
) -> None:
    with pytest.raises(SettingsError):
        executor_settings(**wrong)
