"""A login provider in the place of Hugging Face: OpenID Connect on the loopback interface.

It is all that a test of the Space simulates: the page, its OAuth client, the merges and the Hub's
protocol are real.
"""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "the-space", "oauthsecretwhichnobodymaysee"


class LoginProvider:
    """A server that logs in `person`, whoever connects, with the token `tokens[person]`.

    Args:
        tokens: the token of each person.
    """

    def __init__(self, tokens: dict[str, str]) -> None:
        self.tokens, self.person = tokens, next(iter(tokens))
        self.expires_in = 3600
        self.key = RSAKey.generate_key(2048, {"kid": "1"})
        self.codes: dict[str, tuple[str, str]] = {}
        handler = type("Handler", (_Handler,), {"provider": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables of a Space."""
        return {
            "SYSTEM": "spaces",
            "SPACE_ID": "org/the-space",
            "OAUTH_CLIENT_ID": CLIENT,
            "OAUTH_CLIENT_SECRET": SECRET,
            "OAUTH_SCOPES": "openid profile write-repos manage-repos",
            "OPENID_PROVIDER_URL": self.url,
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def identity(self, person: str, nonce: str) -> str:
        """Return the signed statement of a person's identity."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 600,
            "nonce": nonce,
            "sub": f"id-of-{person}",
            "name": person.title(),
            "preferred_username": person,
            "profile": f"{self.url}/{person}",
            "picture": f"{self.url}/{person}.png",
        }
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.key)


class _Handler(BaseHTTPRequestHandler):
    provider: LoginProvider

    def do_GET(self) -> None:
        url, provider = urlsplit(self.path), self.provider
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/.well-known/openid-configuration":
            places = {"authorization_endpoint": "authorize", "token_endpoint": "token"}
            facts = {name: f"{provider.url}/{path}" for name, path in places.items()}
            self._json({"issuer": provider.url, "jwks_uri": f"{provider.url}/keys", **facts})
        elif url.path == "/keys":
            self._json({"keys": [provider.key.as_dict(private=False)]})
        elif url.path == "/authorize":
            code = f"code-{len(provider.codes)}"
            provider.codes[code] = provider.person, asked.get("nonce", "")
            back = urlencode({"code": code, "state": asked["state"]})
            joined = "&" if "?" in asked["redirect_uri"] else "?"
            self.send_response(302)
            self.send_header("Location", f"{asked['redirect_uri']}{joined}{back}")
            self.end_headers()
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        person, nonce = self.provider.codes.pop(body["code"][0])
        self._json(
            {
                "access_token": self.provider.tokens[person],
                "token_type": "bearer",
                "expires_in": self.provider.expires_in,
                "scope": "openid profile write-repos manage-repos",
                "id_token": self.provider.identity(person, nonce),
            }
        )

    def _json(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...
