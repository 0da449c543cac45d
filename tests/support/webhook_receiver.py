"""A real HTTP server that webhooks are delivered to."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> str:
        return str(self.payload["event"])

    @property
    def payload(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


class Receiver:
    """A server that responds with given statuses, repeating the last one, and stores requests.

    It responds while ``answers`` is set.
    """

    def __init__(self, *statuses: int) -> None:
        self.received: list[Received] = []
        self.statuses = list(statuses) or [200]
        self.answers = threading.Event()
        self.answers.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.received.append(Received(self.path, dict(self.headers), body))
                outer.answers.wait()
                status = outer.statuses.pop(0) if len(outer.statuses) > 1 else outer.statuses[0]
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.host}/hook?from=flowcast"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
