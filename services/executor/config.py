"""Settings of the executor process."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import DirectoryPath, Field, FilePath, PlainValidator, WithJsonSchema, model_validator

from libs.common.redaction.tenant_scanners import TenantScanners, read_tenant_scanners_file
from libs.common.runtime.setting_types import HttpUrl, Peer, PostgresUrl, RedisUrl, SealingKeys
from libs.common.runtime.settings import ProcessSettings
from services.executor.domain.volumes import Volume

_SHARED = ":shared"
_HOST_NAME = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_VOLUME_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
# A folder's name may hold a comma; a comma that separates two volumes stands before the next volume's name.
_BETWEEN_VOLUMES = re.compile(r",(?=\s*[a-z][a-z0-9_-]{0,62}=/)")


def networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse networks such as `10.1.0.0/16 fd00:7::/64`, separated by spaces or commas."""
    try:
        return tuple(ip_network(network) for network in text.replace(",", " ").split())
    except ValueError:
        raise ValueError("is not a list of networks") from None


def host_names(text: str) -> tuple[str, ...]:
    """Parse host names or addresses such as `hooks.example.internal 127.0.0.1`, separated by spaces or commas."""
    names = text.replace(",", " ").split()
    if not all(_HOST_NAME.fullmatch(name) for name in names):
        raise ValueError("is not a list of host names")
    return tuple(names)


def existing_folders(text: str) -> tuple[Path, ...]:
    """Parse existing folders, separated by commas. A single folder may have commas in its name."""
    if text and Path(text).is_dir():
        return (Path(text),)
    return tuple(_existing_folder(folder.strip()) for folder in text.split(","))


def named_volumes(text: str) -> tuple[tuple[str, Volume], ...]:
    """Parse `name=/folder` or `name=/folder:shared`, separated by commas.

    A name has lower case letters, digits, dashes and underscores.
    """
    named: dict[str, Volume] = {}
    for volume in _BETWEEN_VOLUMES.split(text):
        name, _, folder = volume.strip().partition("=")
        if not _VOLUME_NAME.fullmatch(name) or name in named:
            raise ValueError("is not a list of name=/folder with a different name for each")
        path = folder.removesuffix(_SHARED)
        named[name] = Volume(_existing_folder(path).resolve(), shared=path != folder)
    return tuple(named.items())


def _existing_folder(text: str) -> Path:
    # An empty path would be the working directory.
    if not text or not Path(text).is_dir():
        raise ValueError("is not a list of folders")
    return Path(text)


Networks = Annotated[
    tuple[IPv4Network | IPv6Network, ...],
    PlainValidator(networks),
    WithJsonSchema({"type": "string", "format": "list of networks"}),
]
Folders = Annotated[
    tuple[Path, ...],
    PlainValidator(existing_folders),
    WithJsonSchema({"type": "string", "format": "list of folders"}),
]
HostNames = Annotated[
    tuple[str, ...],
    PlainValidator(host_names),
    WithJsonSchema({"type": "string", "format": "list of host names"}),
]
Volumes = Annotated[
    tuple[tuple[str, Volume], ...],
    PlainValidator(named_volumes),
    WithJsonSchema({"type": "string", "format": "list of name=/folder or name=/folder:shared"}),
]
RedactionRulesFile = Annotated[
    TenantScanners,
    PlainValidator(read_tenant_scanners_file),
    WithJsonSchema({"type": "string", "format": "file-path"}),
]


class Settings(ProcessSettings):
    """The settings of the executor."""

    database_url: PostgresUrl = Field(
        description="PostgreSQL database of claims, results, tools' logs and the audit outbox."
    )
    redis_url: RedisUrl = Field(description="Redis that counts calls against limits and budgets.")
    sealing_keys: SealingKeys = Field(description="Folder of keys (`*.key`) that seal stored results and tools' logs.")
    registry_address: Peer = Field(description="Address of the registry.")
    authz_address: Peer = Field(description="Address of authz: public keys, revocations and decisions.")
    audit_address: Peer = Field(description="Address of audit.")
    approval_address: Peer = Field(description="Address of approval: tickets of calls that need a person.")
    audit_wait_seconds: float = Field(
        5.0, ge=0.05, le=30, description="Longest time that a call waits for the log. Covers a restart of the log."
    )
    redaction_rules: RedactionRulesFile = Field(
        default_factory=TenantScanners, description="JSON file with the tenants' own redaction rules. Empty: none."
    )
    egress_internal: Networks = Field(
        (), description="Private networks that tools may connect to. Metadata services stay blocked."
    )
    secret_store: DirectoryPath | None = Field(
        None, description="Folder of encrypted credentials that `toolmesh secrets` writes. Empty: none."
    )
    secret_files: DirectoryPath | None = Field(
        None,
        description="Folder of mounted credentials: `name` has the value, `name.json` its hosts and namespaces."
        " Empty: none.",
    )
    vault_address: HttpUrl | None = Field(
        None, description="Address of Vault or OpenBao, which holds credentials. Empty: none."
    )
    vault_path: str = Field(
        "secret/toolmesh",
        pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$",
        description="Mount of its KV engine, version 2, and the folder of the credentials in it.",
    )
    vault_login: Literal["approle", "kubernetes", "jwt", "token"] = Field(
        "kubernetes", description="How the executor logs in there."
    )
    vault_role: str = Field("", max_length=255, description="Role of the login; the role id of an AppRole.")
    vault_credential: FilePath | None = Field(
        None, description="File with the secret id, the JWT or the token. It is read for every login."
    )
    vault_mount: str = Field(
        "",
        pattern=r"^([A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*)?$",
        description="Where the login is mounted. Empty: at its own name.",
    )
    vault_namespace: str = Field("", max_length=255, description="Namespace in the server. Empty: none.")
    vault_ca: FilePath | None = Field(
        None, description="Certificates that its TLS is checked with. Empty: those of the machine."
    )
    runsc: FilePath | None = Field(
        None, description="gVisor's program. Empty: what `make gvisor` built, else `runsc` on the PATH."
    )
    result_ttl_seconds: float = Field(
        3600.0, ge=1, le=604_800, description="Time that a result too large for the response can be fetched."
    )
    result_max_bytes: int = Field(64 << 20, ge=1, le=1 << 30, description="Largest result that is stored.")
    tool_log_seconds: float = Field(
        604_800.0, ge=60, le=31_536_000, description="Time that what a tool printed can be read."
    )
    tool_log_tenant_bytes: int = Field(
        16 << 20,
        ge=1 << 16,
        le=1 << 34,
        description="Most bytes of tools' logs of one tenant. Its oldest logs are deleted first.",
    )
    result_cache_bytes: int = Field(
        16 << 20, ge=0, le=1 << 34, description="Memory for cached results of read-only tools. 0: no cache."
    )
    tool_packs: Folders = Field((), description="Folders of tool packs.")
    tool_pack_poll_seconds: float = Field(
        0.5,
        ge=0,
        le=3600,
        description="How often the folders of tool packs are searched for added, changed and removed packs. 0: only at"
        " the start.",
    )
    volumes: Volumes = Field(
        (),
        description="Folders that tools may read or write, by the name in their permissions. Each tenant has a folder"
        " of its own in them, unless `:shared` follows.",
    )
    workers: int = Field(16, ge=1, le=1000, description="Most warm workers. One tenant has at most half of them.")
    sandbox_start_seconds: float = Field(
        30.0,
        ge=1,
        le=300,
        description="Longest start of a sandbox. It is not part of the tool's own time.",
    )
    cancel_stop_seconds: float = Field(
        5.0,
        ge=0,
        le=3600,
        description="Time that a canceled tool has to stop by itself. Then it is terminated.",
    )
    cancel_terminate_seconds: float = Field(
        2.0, ge=0, le=600, description="Time that a terminated tool has to end. Then it is killed."
    )
    sandbox_cgroups: Literal["required", "preferred", "off"] = Field(
        "preferred", description="Whether control groups limit confined processes: always, where possible, or never."
    )
    sandbox_cgroup_parent: str = Field(
        "",
        max_length=1024,
        pattern=r"^/?([A-Za-z0-9_.:@\\-]+(/[A-Za-z0-9_.:@\\-]+)*)?/?$",
        description="Control group below which sandboxes get theirs, delegated to this user: `tools` is below the"
        " executor's own, `/system.slice/tools` a path from the root. Default: the executor's own.",
    )
    sandbox_folders: Folders = Field(
        (),
        description="Folders that every sandbox shows read-only, beside programs and libraries of the system: what a"
        " program of `/usr/bin` needs, such as `/usr/lib/jvm`.",
    )
    pod_namespace: str = Field(
        "",
        max_length=63,
        pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$",
        description="Namespace of Kubernetes in which tools of the tier `machine` run as pods. Empty: none do.",
    )
    pod_image: str = Field(
        "",
        max_length=512,
        description="Image of these pods, with Python: that of the executor. Needed with a namespace.",
    )
    pod_python: str = Field(
        "", max_length=512, description="Path of Python in this image. Empty: the path of the executor's own."
    )
    pod_runtime_class: str = Field(
        "",
        max_length=253,
        pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$",
        description="RuntimeClass of these pods, such as one of gVisor. Empty: the default, in a user namespace.",
    )
    pod_claims: Literal["required", "preferred", "off"] = Field(
        "preferred",
        description="Whether these pods are had by a SandboxClaim of agent-sandbox: `preferred` where its objects are"
        " installed, `required` nowhere else, `off` never.",
    )
    pod_kubeconfig: FilePath | None = Field(
        None, description="Credentials for that cluster. Empty: the service account of the executor's own pod."
    )
    tool_concurrency: int = Field(
        16, ge=1, le=10_000, description="Concurrent calls of one tool whose manifest sets no limit."
    )
    service_concurrency: int = Field(
        16, ge=1, le=10_000, description="Concurrent calls of all tools that use the same external service."
    )
    sandbox_concurrency: int = Field(16, ge=1, le=10_000, description="Concurrent calls in sandboxes.")
    queue_limit: int = Field(
        512,
        ge=1,
        le=10_000,
        description="Calls that may wait in the queue. One tool has at most half of it, one tenant a quarter.",
    )
    subject_calls: int = Field(
        128,
        ge=64,
        le=100_000,
        description="Calls of one subject under way at once. A group counts as its calls.",
    )
    tenant_calls: int = Field(
        512,
        ge=64,
        le=100_000,
        description="Calls of one tenant under way at once. A group counts as its calls.",
    )
    job_concurrency: int = Field(16, ge=0, le=1000, description="Jobs that this process runs at once. 0: none.")
    job_tenant_concurrency: int = Field(
        8, ge=1, le=10_000, description="Jobs of one tenant that all executors together run at once."
    )
    job_tool_concurrency: int = Field(
        16, ge=1, le=10_000, description="Jobs of one tool that all executors together run at once."
    )
    job_queue_limit: int = Field(
        10_000, ge=4, le=1_000_000, description="Jobs that may wait. One tenant has at most a quarter of them."
    )
    job_retention_seconds: float = Field(
        86_400.0, ge=3600, le=2_592_000, description="Time that a job is kept after its end."
    )
    checkpoint_state_bytes: int = Field(
        4 << 20, ge=1024, le=64 << 20, description="Largest state that a tool may save as a checkpoint."
    )
    checkpoint_tenant_bytes: int = Field(
        256 << 20,
        ge=1 << 16,
        le=1 << 40,
        description="Most bytes of stored checkpoints of one tenant. Those in Redis have a quarter of it beside it.",
    )
    callback_internal_hosts: HostNames = Field(
        (),
        description="Hosts that callbacks may be sent to although their addresses are not public, also with plain"
        " HTTP. For receivers of the deployment itself and for tests. Metadata services stay blocked.",
    )
    hooks: FilePath | None = Field(None, description="JSON file with the deployment's hooks.")
    claim_lease_seconds: float = Field(
        10.0, ge=0.5, le=300, description="Lease of an idempotency claim. A running call renews it."
    )

    @model_validator(mode="after")
    def _check_pods(self) -> Settings:
        if self.pod_namespace and not self.pod_image:
            raise ValueError("TOOLMESH_POD_NAMESPACE needs TOOLMESH_POD_IMAGE, the image of the pods")
        return self

    @model_validator(mode="after")
    def _check_vault(self) -> Settings:
        if self.vault_address is not None and self.vault_credential is None:
            raise ValueError("TOOLMESH_VAULT_ADDRESS needs TOOLMESH_VAULT_CREDENTIAL, the file to log in with")
        return self
