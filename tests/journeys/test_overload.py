"""A service under overload refuses excess requests at once and recovers."""

import json
import shutil
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.support.services import ADMIN_KEY, ANSWER_SECONDS, running_service
from tests.support.waiting import WAIT_SECONDS

N = 40  # requests at once; four are worked on, one more may wait
FIRST = 1_757_894_400  # a slot of September 2025, in Unix seconds


def count(i: int) -> dict[str, Any]:
    slot = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(FIRST + 900 * i))
    return {"link_id": "A", "slot_start": slot, "count": i}


class Post(threading.Thread):
    """One client with one count, and the answer it got."""

    def __init__(self, port: int, i: int, refused: threading.Event) -> None:
        super().__init__()
        self.i, self.refused, self.status, self.retry_after = i, refused, 0, ""
        self.problem: dict[str, Any] = {}
        headers = {"X-API-Key": ADMIN_KEY, "Content-Type": "application/json"}
        body = json.dumps({"counts": [count(i)]}).encode()
        self.question = Request(f"http://127.0.0.1:{port}/v1/counts", body, headers)

    def run(self) -> None:
        try:
            with urlopen(self.question, timeout=ANSWER_SECONDS) as answer:
                self.status = answer.status
        except HTTPError as problem:
            self.status, self.retry_after = problem.code, problem.headers["Retry-After"]
            self.problem = json.loads(problem.read())
            self.refused.set()


def test_an_overloaded_service_refuses_loses_nothing_and_recovers(sqlite_template: Path, tmp_path: Path) -> None:
    file = tmp_path / "flowcast.db"
    shutil.copy(sqlite_template, file)
    with running_service(f"sqlite:///{file}", tmp_path, "--no-worker", FLOWCAST_MAX_WAITING="1") as service:
        assert service.request("PUT", "/v1/links/A", {"name": "A", "zone": "Europe/Berlin"})[0] == 201
        assert service.request("POST", "/v1/counts", {"counts": [count(0)]})[0] == 200
        forecast = service.request("GET", "/v1/links/A/forecast")
        assert forecast[0] == 200

        busy, refused = sqlite3.connect(file, isolation_level=None), threading.Event()
        busy.execute("BEGIN IMMEDIATE")  # blocks other writers, so that batches wait for its end
        posts = [Post(service.port, i, refused) for i in range(1, N)]
        for post in posts:
            post.start()
        assert refused.wait(WAIT_SECONDS)
        status, problem = service.request("GET", "/v1/links/A/accuracy")
        assert (status, problem["type"]) == (503, "/problems/overloaded")
        assert service.request("GET", "/v1/links/A/forecast") == forecast  # it lies ready, and is given
        assert [service.request("GET", path)[0] for path in ("/livez", "/readyz")] == [200, 200]
        assert 'flowcast_requests_shed_total{what="write"}' in service.metrics()
        busy.execute("ROLLBACK")
        busy.close()

        for post in posts:
            post.join()
        shed = [post for post in posts if post.status == 503]
        assert {post.status for post in posts} == {200, 503}
        assert all(post.retry_after.isdigit() and int(post.retry_after) >= 1 for post in shed)
        assert all(post.problem["type"] == "/problems/overloaded" for post in shed)
        assert "nothing of this one was done" in shed[0].problem["detail"]
        taken = {0} | {post.i for post in posts if post.status == 200}
        assert _stored(file) == taken

        for post in shed:
            assert service.request("POST", "/v1/counts", {"counts": [count(post.i)]})[0] == 200
        assert _stored(file) == set(range(N))
        assert service.request("GET", "/v1/links/A/accuracy")[0] == 200


def _stored(file: Path) -> set[int]:
    with sqlite3.connect(file) as database:
        return {row[0] for row in database.execute("SELECT count FROM counts")}
