"""``flowcast serve``: the API, with a retrain worker beside it."""

from __future__ import annotations

import logging
import logging.config
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import FrameType
from typing import Annotated

import typer
from uvicorn import Config, Server
from uvicorn.supervisors import Multiprocess

from app.commands.console import notes, refuse
from app.commands.database import current_database, read_settings, service_database
from app.core.metrics import SHARED_FOLDER
from app.core.schema import upgrade_schema
from app.keys.issue import make_first_key
from app.server.connections import patient_protocol
from app.server.logs import logging_config
from app.settings import Settings, Switch, settings_from_environment

log = logging.getLogger("flowcast.serve")

RESTART_SECONDS = 2.0
STOP_SECONDS = 20.0
KEEP_ALIVE_SECONDS = 65  # longer than reverse proxies keep theirs, so that none sends into a closing connection
FINISH_SECONDS = 30
BACKLOG = 2048


def serve_command(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes that serve.")] = 1,
    root_path: Annotated[
        str | None, typer.Option(help="Path prefix that a reverse proxy strips; FLOWCAST_ROOT_PATH otherwise.")
    ] = None,
    upgrade: Annotated[bool, typer.Option("--upgrade/--no-upgrade", help="Bring the schema up to date first.")] = True,
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Start a retrain worker, too.")] = True,
) -> None:
    """Serve the API; SIGTERM lets the requests under way finish.

    Example:

        flowcast serve --host 0.0.0.0 --port 8000 --workers 2
    """
    if root_path is not None:
        os.environ["FLOWCAST_ROOT_PATH"] = root_path  # the processes that serve read it from there
        settings_from_environment.cache_clear()
    settings = read_settings("serve")
    logging.config.dictConfig(logging_config(settings.log_level))
    with listening(host, port) as listener:
        prepare(settings, upgrade=upgrade)
        config = server_config(settings, workers)
        address = listener.getsockname()
        shown = f"[{host}]" if ":" in host else host
        log.info("serving", extra={"url": f"http://{shown}:{address[1]}{settings.root_path}", "workers": workers})
        with running_worker() if worker else nullcontext():
            run(config, listener, workers)


def listening(host: str, port: int) -> socket.socket:
    """Open the port before anything else is done, or exit with the reason."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno and problem.errno > 0 else str(problem)
        refuse("serve", f"cannot listen on {host} port {port}: {reason.lower()}")
    listener.set_inheritable(True)
    return listener


def prepare(settings: Settings, *, upgrade: bool) -> None:
    """Upgrade the schema, if wanted, and make the first admin key."""
    with (service_database if upgrade else current_database)("serve", settings) as engine:
        if upgrade:
            upgrade_schema(engine)
        if settings.auth is Switch.OFF:
            log.warning("FLOWCAST_AUTH=off: everyone who can reach this address may call every route")
        first = make_first_key(engine, settings, terminal=sys.stdout.isatty())
    if first.shown:
        notes.print("This is the first start. The admin key, shown only now:")
        typer.echo(first.shown)
    elif first.file:
        log.warning("this is the first start; the admin key is in a file", extra={"file": str(first.file)})


def server_config(settings: Settings, workers: int) -> Config:
    """Return the options that uvicorn serves with."""
    return Config(
        "app.main:create_service",
        factory=True,
        workers=workers,
        loop="uvloop",
        http=patient_protocol(settings),
        ws="none",
        lifespan="on",
        log_config=logging_config(settings.log_level),
        access_log=False,  # RequestMiddleware writes its own
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=FINISH_SECONDS,
        timeout_worker_healthcheck=FINISH_SECONDS,
    )


def run(config: Config, listener: socket.socket, workers: int) -> None:
    """Serve until the process receives a signal."""
    if workers == 1:
        Server(config).run(sockets=[listener])
        return
    with ExitStack() as stack:
        if SHARED_FOLDER not in os.environ:
            os.environ[SHARED_FOLDER] = stack.enter_context(tempfile.TemporaryDirectory(prefix="flowcast-metrics-"))
            stack.callback(os.environ.pop, SHARED_FOLDER, None)
        Multiprocess(config, sockets=[listener]).run()


class _Terminated(SystemExit):
    """The process received SIGTERM."""


@contextmanager
def running_worker() -> Iterator[None]:
    """Run one worker process for the length of a block, and start it again when it ends."""
    stopping = threading.Event()
    thread = threading.Thread(target=_keep_running, args=(stopping,), name="worker-beside", daemon=True)
    # The server, once it has stopped, raises the signal again that stopped it. By default that would end
    # this process at once and leave the worker without a parent.
    before = signal.signal(signal.SIGTERM, _raise_terminated)
    thread.start()
    try:
        try:
            yield
        finally:
            stopping.set()
            thread.join(timeout=2 * STOP_SECONDS)
            signal.signal(signal.SIGTERM, before)
    except _Terminated:
        signal.raise_signal(signal.SIGTERM)  # to end as its sender expects
        raise


def _raise_terminated(number: int, _frame: FrameType | None) -> None:
    raise _Terminated(128 + number)


def _keep_running(stopping: threading.Event) -> None:
    while not stopping.is_set():
        # A process group of its own: Ctrl-C reaches the service, which then stops the worker.
        command = [sys.executable, "-m", "app", "worker", "--parent", str(os.getpid())]
        process = subprocess.Popen(command, start_new_session=True)
        while process.poll() is None and not stopping.wait(0.2):
            pass
        if not stopping.is_set():
            log.error("the worker ended and is restarted", extra={"code": process.returncode})
            stopping.wait(RESTART_SECONDS)
            continue
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
