"""The TLS of the HTTP server: connections that begin after the files were replaced use the new ones."""

from __future__ import annotations

import os
import ssl

from libs.common.rpc.tls_files import Credentials, TlsFiles, TlsMaterial


class RotatingContext:
    """A context that requires a certificate of the mesh from every peer."""

    def __init__(self, credentials: Credentials) -> None:
        self._files = TlsFiles(credentials)
        self.first = self._current = _context(self._files.current)
        """The context for the server. For each connection it selects the present one."""
        self.first.sni_callback = self._select

    def _select(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called for each handshake, also without a server name."""
        if (material := self._files.renewed()) is not None:
            self._current = _context(material)
        if self._current is not context:
            connection.context = self._current


def _context(tls: TlsMaterial) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    context.load_verify_locations(cadata=tls.authority.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    # Only files are accepted, and those on disk may have been replaced since they were read.
    descriptor = os.memfd_create("tls")
    try:
        os.write(descriptor, tls.certificate + b"\n" + tls.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
