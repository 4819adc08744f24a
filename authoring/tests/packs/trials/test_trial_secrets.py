"""The credentials of tools under test."""

from __future__ import annotations

from authoring.packs.trials.trial_secrets import TrialSecrets
from services.executor.adapters.secrets.call_secrets import read_call_secrets
from services.executor.tests.packing import confined, python_tool


async def test_every_tool_of_the_pack_reads_given_and_made_up_values() -> None:
    uses = (("key", "crm"), ("other", "spare"))
    tools = [
        python_tool("pack/m:f", qualified="acme.one", secrets=uses, confinement=confined(hosts=("*.example.com",))),
        python_tool("pack/m:g", qualified="bolt.two", secrets=uses),
    ]
    store = TrialSecrets({"crm": "given"}, tools)
    for tool in tools:
        secrets = await read_call_secrets(tool, "", store)
        assert secrets.values == {"key": "given", "other": "test-value-of-spare"}
    await store.reject("crm", "")
