"""Settings of the gateway process."""

from __future__ import annotations

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, FilePath, PlainValidator, WithJsonSchema, model_validator

from libs.common.runtime.setting_types import HttpsUrl, Origins, Peer, RedisUrl, SealingKeys, file_with
from libs.common.runtime.settings import ProcessSettings
from services.gateway.mcp.views import read_views


def parse_issuers(text: str) -> tuple[str, ...]:
    """Parse the URLs of issuers, separated by commas. Raises ValueError."""
    issuers = tuple(filter(None, map(str.strip, text.split(","))))
    for issuer in issuers:
        parts = urlsplit(issuer)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("an issuer is an http(s) URL without a query")
    return issuers


Issuers = Annotated[
    tuple[str, ...],
    PlainValidator(parse_issuers),
    WithJsonSchema({"type": "string", "format": "http(s) URLs, separated by commas"}),
]


class Settings(ProcessSettings):
    """The settings of the gateway: its peers, how it serves MCP, and the sessions and login of the console."""

    executor_address: Peer = Field(description="Address of the executor.")
    registry_address: Peer = Field(description="Address of the registry.")
    authz_address: Peer = Field(description="Address of authz: public keys, revocations and decisions.")
    audit_address: Peer = Field(description="Address of audit: records and usage.")
    approval_address: Peer = Field(description="Address of approval: tickets.")
    redis_url: RedisUrl = Field(description="Redis that keeps the sessions of MCP clients.")
    mcp_views: Annotated[FilePath, AfterValidator(file_with("views of tools", read_views))] | None = Field(
        None, description="JSON file with the views at `/mcp/<view>`. Empty: only `/mcp`."
    )
    mcp_page_origins: Origins = Field(
        (), description="Origins of web pages that may call `/mcp`, beside those of the mesh itself."
    )
    mcp_authorization_servers: Issuers = Field(
        (), description="OAuth issuers that MCP clients obtain their tokens from, for the metadata of RFC 9728."
    )
    console_keys: SealingKeys | None = Field(
        None,
        description="Keys of the console's sessions, and of what MCP sessions keep in Redis. "
        "Empty: both end with the process, and one replica runs.",
    )
    console_oidc_issuer: HttpsUrl = Field(
        "", description="OpenID provider for the console's login. Empty: login with a mesh token only."
    )
    console_oidc_client_id: str = Field(
        "", description="The console's client id at the provider. Authz must trust it as the issuer's audience."
    )
    console_oidc_client_secret: str = Field(
        "", repr=False, description="The console's client secret. Empty: a public client, with PKCE alone."
    )
    console_oidc_scopes: str = Field("openid", description="Scopes that the login asks for.")
    console_oidc_ca: FilePath | None = Field(
        None, description="Certificate authorities of the provider, in PEM. Empty: those of the system."
    )

    @model_validator(mode="after")
    def _check_login(self) -> Self:
        if bool(self.console_oidc_issuer) != bool(self.console_oidc_client_id):
            raise ValueError("TOOLMESH_CONSOLE_OIDC_ISSUER and TOOLMESH_CONSOLE_OIDC_CLIENT_ID are set together")
        return self
