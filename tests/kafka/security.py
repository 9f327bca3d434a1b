"""Certificates, users and broker settings of the secured listeners."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from tests.web.certificates import Authority, Pair

_MODULES = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True)
class Security:
    """Certificates and the user of a broker with secured listeners."""

    authority: Path
    """The CA of the broker and of its clients."""
    client: Pair
    untrusted: Pair
    """A client certificate of another CA."""
    user: str = "cpcmon"
    password: str = field(default_factory=lambda: secrets.token_urlsafe(18), repr=False)

    @classmethod
    def create(cls, folder: Path) -> "Security":
        """Create the certificates."""
        folder.mkdir()
        ours, theirs = Authority(folder, "authority"), Authority(folder, "other-authority")
        broker = ours.signed("broker")
        (folder / "broker.pem").write_text(broker.key.read_text() + broker.cert.read_text())
        return cls(ours.pair.cert, ours.signed("client"), theirs.signed("untrusted"))

    def settings(self) -> dict[str, str]:
        """Return the settings in server.properties for the listeners SSL, SASL_PLAINTEXT and SASL_SSL."""
        found = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.with_name("broker.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            for mechanism, login in self._logins().items():
                found[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = login
            # Unsigned tokens: the tests only check that a token is sent.
            found[f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class"] = (
                f"{_MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
            )
        return found

    def _logins(self) -> dict[str, str]:
        scram = f"{_MODULES}.scram.ScramLoginModule required;"
        return {
            "plain": f'{_MODULES}.plain.PlainLoginModule required user_{self.user}="{self.password}";',
            "scram-sha-256": scram,
            "scram-sha-512": scram,
            "oauthbearer": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
        }

    def format_arguments(self) -> list[str]:
        """Return the arguments of StorageTool that create the SCRAM user."""
        return [
            word
            for mechanism in MECHANISMS
            if mechanism.startswith("SCRAM")
            for word in ("--add-scram", f"{mechanism}=[name={self.user},password={self.password}]")
        ]
