"""``flowcast serve``."""

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
from contextlib import ExitStack, nullcontext
from types import FrameType
from typing import Annotated, Any

import typer
from uvicorn import Config, Server
from uvicorn.supervisors import Multiprocess

from app.commands.console import notes, refuse
from app.commands.service import service_database, settings_or_refuse
from app.core.metrics import SHARED_FOLDER
from app.core.schema import NEWEST_STEP, schema_step, upgrade_schema
from app.keys.issue import make_first_key
from app.server.connections import patient_protocol
from app.server.logs import logging_config
from app.settings import Settings, Switch, settings_from_environment

RESTART_SECONDS = 2.0
STOP_SECONDS = 20.0


class _Terminated(SystemExit):
    """SIGTERM came."""


def _leave(number: int, _frame: FrameType | None) -> None:
    raise _Terminated(128 + number)


class WorkerBeside:
    """Keeps one worker process alive for as long as it is entered."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._before: Any = signal.SIG_DFL
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="worker-beside", daemon=True)

    def __enter__(self) -> WorkerBeside:
        # The server, once it has stopped, raises the signal again that stopped it. By default that would end
        # this process on the spot, and leave the worker to itself.
        self._before = signal.signal(signal.SIGTERM, _leave)
        self._thread.start()
        return self

    def __exit__(self, _kind: object, problem: object, _where: object) -> None:
        self._over.set()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        self._thread.join(timeout=2 * STOP_SECONDS)
        signal.signal(signal.SIGTERM, self._before)
        if isinstance(problem, _Terminated):
            signal.raise_signal(signal.SIGTERM)  # to end as whoever sent it expects

    def _watch(self) -> None:
        while not self._over.is_set():
            # A process group of its own: Ctrl-C reaches the service, which then stops the worker.
            command = [sys.executable, "-m", "app", "worker", "--parent", str(os.getpid())]
            self._process = subprocess.Popen(command, start_new_session=True)
            while self._process.poll() is None and not self._over.wait(0.2):
                pass
            if self._over.is_set():
                self._end(self._process)
            else:
                log.error("the worker ended and is started again", extra={"code": self._process.returncode})
                self._over.wait(RESTART_SECONDS)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


log = logging.getLogger("flowcast.serve")

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
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Start a retrain worker beside it.")] = True,
) -> None:
    """Serve the API; SIGTERM finishes what is under way."""
    if root_path is not None:
        os.environ["FLOWCAST_ROOT_PATH"] = root_path  # where the processes that serve will find it
        settings_from_environment.cache_clear()
    settings = settings_or_refuse("serve")
    logging.config.dictConfig(logging_config(settings.log_level))
    with listening(host, port) as listener:
        prepare(settings, upgrade=upgrade)
        config = server_config(settings, workers)
        address = listener.getsockname()
        shown = f"[{host}]" if ":" in host else host
        log.info("serving", extra={"url": f"http://{shown}:{address[1]}{settings.root_path}", "workers": workers})
        with WorkerBeside() if worker else nullcontext():
            run(config, listener, workers)


def listening(host: str, port: int) -> socket.socket:
    """Open the port before anything else is done, or say in one line why not."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno and problem.errno > 0 else str(problem)
        refuse("serve", f"cannot listen on {host} port {port}: {reason.lower()}")
    listener.set_inheritable(True)
    return listener


def prepare(settings: Settings, *, upgrade: bool) -> None:
    """Bring the schema up to date and see that somebody can get in."""
    with service_database("serve", settings) as engine:
        if upgrade:
            upgrade_schema(engine)
        elif (step := schema_step(engine) or "none") != NEWEST_STEP:
            refuse("serve", f"the schema is at step {step}, this version needs {NEWEST_STEP}: flowcast db upgrade")
        if settings.auth is Switch.OFF:
            log.warning("FLOWCAST_AUTH=off: everyone who reaches this address may read, write and administer")
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
    """Serve until a signal comes."""
    if workers == 1:
        Server(config).run(sockets=[listener])
        return
    with ExitStack() as stack:
        if SHARED_FOLDER not in os.environ:
            os.environ[SHARED_FOLDER] = stack.enter_context(tempfile.TemporaryDirectory(prefix="flowcast-metrics-"))
            stack.callback(os.environ.pop, SHARED_FOLDER, None)
        Multiprocess(config, sockets=[listener]).run()
