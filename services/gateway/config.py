"""Settings of the gateway process."""

from __future__ import annotations

from typing import Self

from pydantic import Field, FilePath, model_validator

from libs.common.runtime.setting_types import HttpsUrl, Peer, SealingKeys
from libs.common.runtime.settings import ProcessSettings


class Settings(ProcessSettings):
    """The settings of the gateway: the addresses of its peers, and the console's sessions and login."""

    executor_address: Peer = Field(description="Address of the executor.")
    registry_address: Peer = Field(description="Address of the registry.")
    authz_address: Peer = Field(description="Address of authz: public keys, revocations and decisions.")
    audit_address: Peer = Field(description="Address of audit: records and usage.")
    approval_address: Peer = Field(description="Address of approval: tickets.")
    console_keys: SealingKeys | None = Field(
        None, description="Keys of the console's sessions. Empty: sessions end with the process, and one replica runs."
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
