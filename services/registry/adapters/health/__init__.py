"""The health of versions, kept in memory."""
