"""Compiles registered versions into the domain's Tool, so that the warm path computes nothing from the manifest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb
from toolmesh.registry.v1 import tool_trust_pb2 as tpb
from toolmesh.registry.v1 import tool_version_pb2 as vpb

from libs.authz_client.tool_attributes import computed_at, health_name, stage_name
from libs.common.errors import MeshError
from libs.common.secret_store.secret import SCHEME
from libs.common.semver import Version
from libs.common.tool_names import ToolName, split_version_name
from services.executor.adapters.registry.compile_arguments import compile_arguments
from services.executor.adapters.registry.http_profiles import circuit_config_of, http_endpoint_of, retry_policy_of
from services.executor.adapters.registry.json_schema import (
    SchemaError,
    defaults_of,
    input_contract,
    output_contract,
    resources_of,
)
from services.executor.adapters.registry.manifest_profiles import (
    checkpoint_of,
    confinement_of,
    placement_of,
    rendering_of,
)
from services.executor.domain.deadlines import CLASS_SECONDS
from services.executor.domain.tool import Deprecation, Effect, Mutation, TimeoutClass, Tool, ToolTrust, UncertainOutcome

# The part of a 4 MiB message that a result may use.
MAX_RESULT_BYTES = 3 * 1024 * 1024
MIN_WINDOW_SECONDS = 3600.0
_SANDBOXED = (mpb.RUNNER_KIND_PYTHON, mpb.RUNNER_KIND_COMMAND)


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One registered version: its state, and the compiled tool, or None if it cannot be compiled."""

    name: str
    tool_name: ToolName
    version: Version
    digest: str
    state: str
    """The enum name without prefix: `AVAILABLE`, `DEPRECATED`, `SUNSET`, ..."""
    state_reason: str
    sunset_at: float | None
    successor: str
    aliases: tuple[str, ...]
    tool: Tool | None


def compile_version(version: vpb.ToolVersion, former: CatalogEntry | None = None) -> CatalogEntry:
    """Compile a version. If the digest is unchanged, the compiled schemas of the former entry are reused."""
    tool_name, number = split_version_name(version.name)
    deprecation = _deprecation(version)
    if former is not None and former.digest == version.digest:
        tool = former.tool and replace(
            former.tool,
            deprecation=deprecation,
            deferred=_deferred(version),
            trust=trust_of(version.trust),
            health=health_name(version.health),
        )
    else:
        tool = _try_compile(version, tool_name, number, deprecation)
    sunset = deprecation.sunset_time if deprecation else None
    return CatalogEntry(
        name=version.name,
        tool_name=tool_name,
        version=Version.parse(number),
        digest=version.digest,
        state=vpb.LifecycleState.Name(version.state).removeprefix("LIFECYCLE_STATE_"),
        state_reason=version.state_reason,
        sunset_at=sunset.timestamp() if sunset else None,
        successor=version.deprecation.successor,
        aliases=_aliases(version),
        tool=tool,
    )


def trust_of(trust: tpb.ToolTrust) -> ToolTrust:
    """Convert the trust in a tool."""
    older = tuple(alike.name for alike in trust.look_alikes if alike.older)
    return ToolTrust(trust.score, computed_at(trust), stage_name(trust), trust.publisher_verified, older)


def _try_compile(version: vpb.ToolVersion, name: ToolName, number: str, deprecation: Deprecation | None) -> Tool | None:
    try:
        return _compile(version, name, number, deprecation)
    except (SchemaError, MeshError, ValueError):
        # The version stays in the catalog but cannot be called. The registry's admission should have refused it.
        return None


def _compile(version: vpb.ToolVersion, name: ToolName, number: str, deprecation: Deprecation | None) -> Tool:
    manifest = version.manifest
    mutation = Mutation(mpb.MutationClass.Name(manifest.mutation_class).removeprefix("MUTATION_CLASS_").lower())
    timeout_class = _timeout_class(manifest.execution)
    confinement = confinement_of(manifest)
    return Tool(
        name=version.name,
        qualified=name.qualified,
        version=number,
        digest=version.digest,
        mutation=mutation,
        timeout_class=timeout_class,
        own_limit=_own_limit(manifest.execution, timeout_class),
        window=max(_seconds(manifest.idempotency.window), 2 * CLASS_SECONDS[timeout_class], MIN_WINDOW_SECONDS),
        runner=mpb.RunnerKind.Name(manifest.execution.runner).removeprefix("RUNNER_KIND_").lower(),
        entry_point=manifest.execution.entry_point,
        input=input_contract(manifest.input.schema, manifest.input.sensitive_fields),
        output=output_contract(manifest.output.schema, manifest.output.sensitive_fields),
        max_result_bytes=min(manifest.output.max_inline_bytes or MAX_RESULT_BYTES, MAX_RESULT_BYTES),
        defaults=defaults_of(manifest.input.schema) if _fills_defaults(manifest) else (),
        key_required=_key_required(manifest, mutation),
        repeatable=_repeatable(manifest, mutation),
        summarized=manifest.observability.audit_detail == mpb.AUDIT_DETAIL_SUMMARY,
        required_scopes=tuple(manifest.permission.required_scopes),
        required_permissions=tuple(manifest.permission.required_permissions),
        tags=tuple(manifest.tags),
        approval_always=manifest.permission.approval == mpb.APPROVAL_REQUIREMENT_ALWAYS,
        impact_scope=manifest.permission.impact_scope,
        closed_world=manifest.interface.safety.closed_world,
        trust=trust_of(version.trust),
        health=health_name(version.health),
        result_labels=tuple(manifest.permission.result_labels),
        resources=resources_of(manifest.input.schema),
        side_effects=tuple(_side_effect(effect) for effect in manifest.side_effects),
        deprecation=deprecation,
        deferred=_deferred(version),
        coerces=_fills_defaults(manifest),
        hooks_may_change=manifest.input.mutation_policy == mpb.INPUT_MUTATION_POLICY_HOOKS,
        internal_only=tuple(manifest.input.internal_only_fields),
        checks=tuple(manifest.interface.semantic_checks),
        matchers=tuple(_matcher(matcher) for matcher in manifest.interface.permission_matchers),
        effects=tuple(Effect(effect.resource, _operation(effect)) for effect in manifest.side_effects),
        uncertain=_uncertain(manifest, mutation),
        # A sandbox without network: what a run does stays in its copies of the volumes until they are committed.
        volumes_only=manifest.execution.runner in _SANDBOXED and not confinement.hosts,
        status_tool=manifest.idempotency.status_tool,
        compensation=manifest.compensation_tool,
        dry_run=manifest.dry_run_supported,
        cancellation_supported=manifest.execution.cancellation_supported,
        progress_supported=manifest.execution.progress_supported,
        cache_seconds=_seconds(manifest.execution.cache_ttl) if mutation is Mutation.READ_ONLY else 0.0,
        stale_seconds=_seconds(manifest.execution.stale_ttl) if mutation is Mutation.READ_ONLY else 0.0,
        persists=not manifest.output.persistence_opt_out,
        argument_spec=compile_arguments(manifest, confinement),
        confinement=confinement,
        secrets=tuple((use.name, use.secret.removeprefix(SCHEME)) for use in manifest.execution.secrets),
        placement=placement_of(manifest),
        rendering=rendering_of(manifest),
        checkpoint=checkpoint_of(manifest),
        http=http_endpoint_of(manifest),
        retry=retry_policy_of(manifest),
        circuit=circuit_config_of(manifest),
    )


def _deferred(version: vpb.ToolVersion) -> bool:
    return version.state == vpb.LIFECYCLE_STATE_DEFERRED


def _timeout_class(execution: mpb.ExecutionProfile) -> TimeoutClass:
    return TimeoutClass(mpb.TimeoutClass.Name(execution.timeout_class).removeprefix("TIMEOUT_CLASS_").lower())


def _own_limit(execution: mpb.ExecutionProfile, timeout_class: TimeoutClass) -> float:
    limits = [_seconds(limit) for limit in (execution.timeout_default, execution.timeout_max)]
    return min([CLASS_SECONDS[timeout_class], *(limit for limit in limits if limit > 0)])


def _fills_defaults(manifest: mpb.ToolManifest) -> bool:
    """Return whether the manifest allows the mesh to change arguments."""
    return manifest.input.mutation_policy in (mpb.INPUT_MUTATION_POLICY_DEFAULTS, mpb.INPUT_MUTATION_POLICY_HOOKS)


def _key_required(manifest: mpb.ToolManifest, mutation: Mutation) -> bool:
    mode = manifest.idempotency.mode
    by_default = mode == mpb.IDEMPOTENCY_MODE_UNSPECIFIED and mutation is not Mutation.READ_ONLY
    return by_default or mode == mpb.IDEMPOTENCY_MODE_KEY_REQUIRED


def _repeatable(manifest: mpb.ToolManifest, mutation: Mutation) -> bool:
    rule = manifest.idempotency.uncertain_outcome
    return mutation is Mutation.READ_ONLY or rule == mpb.UNCERTAIN_OUTCOME_RULE_REPEAT


def _uncertain(manifest: mpb.ToolManifest, mutation: Mutation) -> UncertainOutcome:
    if _repeatable(manifest, mutation):
        return UncertainOutcome.REPEAT
    asks = manifest.idempotency.uncertain_outcome == mpb.UNCERTAIN_OUTCOME_RULE_QUERY_STATUS
    return UncertainOutcome.QUERY_STATUS if asks and manifest.idempotency.status_tool else UncertainOutcome.FAIL


def _matcher(matcher: mpb.PermissionMatcher) -> tuple[str, str]:
    target = mpb.MatchTarget.Name(matcher.target).removeprefix("MATCH_TARGET_").lower()
    return target, matcher.argument_pointer


def _side_effect(effect: mpb.SideEffect) -> str:
    return f"{_operation(effect)} {effect.resource}"


def _operation(effect: mpb.SideEffect) -> str:
    return mpb.SideEffectOperation.Name(effect.operation).removeprefix("SIDE_EFFECT_OPERATION_").lower()


def _deprecation(version: vpb.ToolVersion) -> Deprecation | None:
    if not version.HasField("deprecation"):
        return None
    message = version.deprecation
    sunset = message.sunset_time.ToDatetime(tzinfo=UTC) if message.HasField("sunset_time") else None
    since = message.deprecate_time.ToDatetime(tzinfo=UTC) if message.HasField("deprecate_time") else None
    return Deprecation(sunset, message.successor, message.migration_guide_url, since)


def _aliases(version: vpb.ToolVersion) -> tuple[str, ...]:
    """Return the current aliases; those of the manifest may have been moved since."""
    return tuple(version.aliases.tool_ids if version.HasField("aliases") else version.manifest.aliases)


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
