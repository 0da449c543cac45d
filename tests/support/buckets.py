"""An S3 server as a real process, with its objects in memory."""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.waiting import WAIT_SECONDS, wait_until

SECRET = "not-to-be-seen-in-any-log"


class BucketServer:
    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port
        self.environment = {
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_REGION": "eu-central-1",
        }

    def files(self) -> Any:
        """Return a file system of the server's objects, independent of the service."""
        import fsspec

        return fsspec.filesystem(
            "s3",
            key="tests",
            secret=SECRET,
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            client_kwargs={"region_name": "eu-central-1"},
            use_listings_cache=False,
        )

    def make_bucket(self, name: str) -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{name}",
            method="PUT",
            headers={"Authorization": "AWS4-HMAC-SHA256 Credential=tests/20250101/us-east-1/s3/aws4_request"},
        )
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:
            assert response.status == 200
        return f"s3://{name}"


@contextmanager
def bucket_server(folder: Path) -> Iterator[BucketServer]:
    """Start the server on a free port, and stop it at the end."""
    log = folder / "bucket-server.log"
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", "0"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | {"NO_COLOR": "1"})
    try:

        def listening() -> re.Match[str] | None:
            assert process.poll() is None, log.read_text()
            return re.search(r"Running on http://127\.0\.0\.1:([0-9]+)", log.read_text())

        yield BucketServer(process, int(wait_until(listening, explain=log.read_text)[1]))
    finally:
        process.terminate()
        process.wait(timeout=WAIT_SECONDS)
