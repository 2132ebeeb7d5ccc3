"""A daemon as a system service is: configuration file, tokens of several users, data roots; in a private folder."""

import hashlib
import secrets

import xptychod


class SystemDaemon(xptychod.Daemon):
    def __init__(self, folder, configuration="", *arguments):
        super().__init__(folder, *arguments)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.configuration, self.tokens = self.folder / "xptychod.conf", self.folder / "tokens"
        self.secrets = {}
        self.tokens.touch()
        self.configure(configuration)

    def configure(self, text):
        self.configuration.write_text(f"[http]\ntoken_file = {self.tokens}\n{text}")

    def add_token(self, name, user, *rest):
        """A line of the token file; rest: scopes, expiry."""
        self.secrets[name] = secrets.token_hex(32)
        sha = hashlib.sha256(self.secrets[name].encode()).hexdigest()
        with self.tokens.open("a") as file:
            file.write(":".join((name, str(user), sha, *rest)) + "\n")

    def command(self):
        return [xptychod.program("xptychod"), "--config", str(self.configuration), "--port", "0", "--runtime-dir", str(self.runtime),
                "--state-dir", str(self.state), *self.arguments]

    def api_of(self, name):
        return xptychod.Api(self.ready["http"], self.secrets[name])

    def log_text(self):
        return self.log.read_text(errors="replace")
