"""``flowcast serve``."""

from __future__ import annotations

import logging
import logging.config
import os
import socket
import sys
import tempfile
from contextlib import ExitStack, nullcontext
from typing import Annotated

import typer
from uvicorn import Config, Server
from uvicorn.supervisors import Multiprocess

from app.commands.console import notes, refuse
from app.commands.service import service_database, settings_or_refuse
from app.commands.worker_beside import WorkerBeside
from app.core.metrics import SHARED_FOLDER
from app.core.schema import newest_step, schema_step, upgrade_schema
from app.keys.first_key import make_first_key
from app.server.connections import patient_protocol
from app.server.logs import logging_config
from app.settings import Settings, Switch, settings_from_environment

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
        elif (step := schema_step(engine) or "none") != (newest := newest_step()):
            refuse("serve", f"the schema is at step {step}, this version needs {newest}: flowcast db upgrade")
        if settings.auth is Switch.OFF:
            log.warning("FLOWCAST_AUTH=off: everyone who reaches this address may read, write and administer")
        first = make_first_key(engine, settings, terminal=sys.stdout.isatty())
    if first.shown:
        notes.print("This is the first start. The admin key, shown only now:")
        typer.echo(first.shown)
    elif first.file:
        log.warning("this is the first start; the admin key is in a file", extra={"file": str(first.file)})


def server_config(settings: Settings, workers: int) -> Config:
    """Say how uvicorn serves."""
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
