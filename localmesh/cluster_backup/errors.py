"""Why a backup cannot be made, read or restored."""


class BackupError(Exception):
    """The message is one sentence and holds no secret."""


class TargetError(BackupError):
    """What a restore would overwrite exists, what it needs is missing, or another one runs."""
