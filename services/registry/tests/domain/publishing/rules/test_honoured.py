"""Fields that the mesh does not honour, and entry points that no runner accepts."""

from __future__ import annotations

import pytest
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from services.registry.convert.manifest import manifest_of
from services.registry.domain.publishing.rules.honoured import UNHONOURED, check_entry_point, refuse_unhonoured
from services.registry.tests.manifests import everything, reader, writer


def test_every_field_that_is_not_honoured_is_refused_with_its_place() -> None:
    paths = {violation.path for violation in refuse_unhonoured(manifest_of(everything()))}
    # The first value of these enums asks for nothing.
    silent = {"input.argument_mode", "permission.credential_propagation", "scheduling.interrupt"}
    expected = {f"manifest.{field}" for field in UNHONOURED.keys() - silent - {"side_effects.scope"}}
    assert paths == expected | {"manifest.side_effects[0].scope"}


@pytest.mark.parametrize("message", [reader(), writer()])
def test_a_manifest_may_say_what_holds_anyway(message: pb.ToolManifest) -> None:
    message.input.argument_mode = pb.ARGUMENT_MODE_OBJECT
    message.permission.credential_propagation = pb.CREDENTIAL_PROPAGATION_NONE
    message.scheduling.interrupt = pb.INTERRUPT_BEHAVIOR_CANCEL
    assert not [*refuse_unhonoured(manifest_of(message))]
    message.input.argument_mode = pb.ARGUMENT_MODE_TEXT
    message.permission.credential_propagation = pb.CREDENTIAL_PROPAGATION_OWN
    message.scheduling.interrupt = pb.INTERRUPT_BEHAVIOR_BLOCK
    assert len([*refuse_unhonoured(manifest_of(message))]) == 3


@pytest.mark.parametrize(
    ("runner", "entry_point", "fits"),
    [
        (pb.RUNNER_KIND_PYTHON, "kit/words:count", True),
        (pb.RUNNER_KIND_PYTHON, "words:count", False),
        (pb.RUNNER_KIND_PYTHON, "", False),
        (pb.RUNNER_KIND_COMMAND, '["/usr/bin/wc", "-w"]', True),
        (pb.RUNNER_KIND_COMMAND, "wc -w", False),
        (pb.RUNNER_KIND_COMMAND, '["/usr/bin/bash", "-c", "{text}"]', False),
        (pb.RUNNER_KIND_REMOTE, "anything", True),
    ],
)
def test_an_entry_point_has_the_form_of_its_runner(runner: int, entry_point: str, fits: bool) -> None:
    message = reader()
    message.execution.runner, message.execution.entry_point = runner, entry_point  # type: ignore[assignment]
    assert (not [*check_entry_point(manifest_of(message))]) is fits
