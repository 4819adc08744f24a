"""The command line and the executors mean the same by a signal of abuse."""

from __future__ import annotations

from collections import defaultdict

from toolmesh_sdk.cli.commands.audit.signals import CALLER_SIGNALS, PROVIDER_SIGNALS

from services.executor.adapters.telemetry.abuse_signals import CALLER, PROVIDER, SIGNALS


def test_both_have_the_same_signals_of_the_same_reasons() -> None:
    counted: dict[tuple[str, str], set[str]] = defaultdict(set)
    for reason, signal in SIGNALS.items():
        counted[signal.party, signal.name].add(reason.name)
    shown = {(CALLER, name): set(reasons) for name, reasons in CALLER_SIGNALS.items()}
    shown |= {(PROVIDER, name): set(reasons) for name, reasons in PROVIDER_SIGNALS.items()}
    assert counted == shown
