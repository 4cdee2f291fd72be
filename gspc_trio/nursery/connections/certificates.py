"""The authority of a run-time system: made on first use, it vouches for whoever belongs to it.

Only who issues certificates needs the package ``cryptography``; using them needs the standard library alone.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any, TypeAlias

from gspc_trio.core.imports import missing_extra

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
CLOCK_TOLERANCE = datetime.timedelta(days=1)
"""Certificates begin so much before now, for hosts whose clocks are behind."""


Foreign: TypeAlias = Any
"""An object of the library ``cryptography``, which is imported only when certificates are made."""


class CertificateError(ValueError):
    """There can be no certificates; one line says why, and what to do."""


class Authority:
    """Issues credentials (see ``nursery.connections.tls``); its key never leaves its directory.

    Args:
        folder: of its key and certificate; both are made if they are not there.

    Raises:
        CertificateError: ``cryptography`` is not installed, or what is in the folder is unsafe or damaged.
        OSError: the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError:
            what = "an encrypted connection (--tls, sites)"
            raise CertificateError(missing_extra(what, "cryptography", "tls")) from None
        self._x509, self._ec, self._hashes, self._serialization = x509, ec, hashes, serialization
        path = folder / "authority.pem"
        if path.exists():
            self._load(path)
        else:
            self._make(path)

    def _load(self, path: Path) -> None:
        status = path.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise CertificateError(f"others can read {path}, so it vouches for nobody: remove it")
        data = path.read_bytes()
        try:
            self._key: Foreign = self._serialization.load_pem_private_key(data, None)
            self._certificate = self._x509.load_pem_x509_certificate(data)
        except ValueError as error:
            raise CertificateError(f"{path} is damaged; remove it, and it is made anew: {error}") from error
        if self._certificate.not_valid_after_utc < _now() + datetime.timedelta(days=CERTIFICATE_DAYS):
            raise CertificateError(f"{path} is about to expire; remove it, and it is made anew")

    def _make(self, path: Path) -> None:
        self._key = self._ec.generate_private_key(self._ec.SECP256R1())
        name = self._name("gspc-trio authority")
        builder = self._builder(name, name, self._key.public_key(), AUTHORITY_DAYS)
        builder = builder.add_extension(self._x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(self._usage(sign=True), critical=True)
        self._certificate = builder.sign(self._key, self._hashes.SHA256())
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(self._key_text(self._key) + self._text(self._certificate))

    def issue(self, name: str) -> str:
        """Return credentials for somebody who belongs to this run-time system.

        Args:
            name: who, for people; at most 64 characters.
        """
        key = self._ec.generate_private_key(self._ec.SECP256R1())
        subject = self._name(name[:64] or "nobody")
        issuer = self._certificate.subject
        builder = self._builder(subject, issuer, key.public_key(), CERTIFICATE_DAYS)
        builder = builder.add_extension(
            self._x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        builder = builder.add_extension(self._usage(sign=False), critical=True)
        both = [
            self._x509.oid.ExtendedKeyUsageOID.SERVER_AUTH,
            self._x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH,
        ]
        builder = builder.add_extension(self._x509.ExtendedKeyUsage(both), critical=False)
        certificate = builder.sign(self._key, self._hashes.SHA256())
        return self._text(certificate) + self._key_text(key) + self._text(self._certificate)

    def _builder(self, subject: Foreign, issuer: Foreign, public_key: Foreign, days: int) -> Foreign:
        x509, now = self._x509, _now()
        own = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_TOLERANCE)
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
        )

    def _usage(self, *, sign: bool) -> Foreign:
        return self._x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=sign,
            crl_sign=sign,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )

    def _name(self, text: str) -> Foreign:
        x509 = self._x509
        return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])

    def _text(self, certificate: Foreign) -> str:
        data: bytes = certificate.public_bytes(self._serialization.Encoding.PEM)
        return data.decode("ascii")

    def _key_text(self, key: Foreign) -> str:
        serialization = self._serialization
        data: bytes = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return data.decode("ascii")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
