"""Who is let in at a broker's doors: certificates, users, and what the broker is told about them."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from tests.web.certificates import Authority, Pair

_MODULES = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True)
class Security:
    """Certificates and users of a broker that has more doors than the open one."""

    authority: Path
    """Who signed the broker's certificate, and whose clients it lets in."""
    client: Pair
    stranger: Pair
    """A client's certificate that somebody else signed."""
    user: str = "cpcmon"
    password: str = field(default_factory=lambda: secrets.token_urlsafe(18), repr=False)

    @classmethod
    def made_in(cls, folder: Path) -> "Security":
        """Make certificates and a password."""
        folder.mkdir()
        ours, theirs = Authority(folder, "authority"), Authority(folder, "somebody-else")
        broker = ours.signed("broker")
        (folder / "broker.pem").write_text(broker.key.read_text() + broker.cert.read_text())
        return cls(ours.pair.cert, ours.signed("client"), theirs.signed("stranger"))

    def settings(self) -> dict[str, str]:
        """Return what stands in server.properties for the doors SSL, SASL_PLAINTEXT and SASL_SSL."""
        found = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.with_name("broker.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        }
        for door in ("sasl_plaintext", "sasl_ssl"):
            for mechanism, login in self._logins().items():
                found[f"listener.name.{door}.{mechanism}.sasl.jaas.config"] = login
            # Tokens without a signature: what is tested is that a token arrives, not who signs tokens.
            found[f"listener.name.{door}.oauthbearer.sasl.server.callback.handler.class"] = (
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

    def format_words(self) -> list[str]:
        """Return the words that make StorageTool write the SCRAM users into a new log."""
        return [
            word
            for mechanism in MECHANISMS
            if mechanism.startswith("SCRAM")
            for word in ("--add-scram", f"{mechanism}=[name={self.user},password={self.password}]")
        ]
