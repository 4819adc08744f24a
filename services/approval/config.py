"""Settings of the approval process."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PlainValidator, WithJsonSchema

from libs.common.runtime.setting_types import Peer, PostgresUrl
from libs.common.runtime.settings import ProcessSettings
from services.approval.adapters.notifications.channels_file import ChannelsFile, read_channels_file
from services.approval.adapters.rules_file import read_rules_file
from services.approval.domain.rules import ApprovalRules

RulesFile = Annotated[
    ApprovalRules,
    PlainValidator(read_rules_file),
    WithJsonSchema({"type": "string", "format": "file-path"}),
]

NotificationsFile = Annotated[
    ChannelsFile,
    PlainValidator(read_channels_file),
    WithJsonSchema({"type": "string", "format": "file-path"}),
]


class Settings(ProcessSettings):
    """The settings of approval: its database, its peers and its rules."""

    database_url: PostgresUrl = Field(description="PostgreSQL database of the tickets.")
    authz_address: Peer = Field(description="Address of authz: public keys, revocations and approvers' tokens.")
    audit_address: Peer = Field(description="Address of audit, which records every step of a ticket.")
    approval_rules: RulesFile = Field(
        default_factory=ApprovalRules,
        description="JSON file with the rules of escalation and approvals. Empty: 1 h, 4 h and 24 h for the groups of"
        " a chain.",
    )
    approval_notifications: NotificationsFile = Field(
        default_factory=ChannelsFile,
        description="JSON file with the channels that notify approvers. Empty: no one is notified.",
    )
