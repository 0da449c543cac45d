"""``flowcast settings``."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from app.commands.console import out, refuse
from app.commands.database import read_settings
from app.keys.issue import write_private
from app.settings import Settings, is_secret

KEPT = ("admin_key", "database_password", "grafana_password")


def settings_command(
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Setting that must be set, such as admin_key or database_url; may be repeated."
        ),
    ] = None,
    keep_secrets: Annotated[
        Path | None,
        typer.Option(help=f"Keep {', '.join(KEPT)} in this folder; those that are set nowhere are created."),
    ] = None,
    copy_secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:FOLDER", help=f"Copy a kept secret to another folder, too; NAME is one of {', '.join(KEPT)}."
        ),
    ] = None,
) -> None:
    """Check the settings and print them without secrets; exit with 2 if one is refused.

    Example:

        flowcast settings --require admin_key
    """
    for name in require or []:
        if name not in Settings.model_fields:
            refuse("settings", f"require={name!r} is refused; it must name a setting, such as admin_key")
    copies = [_copy_of(given) for given in copy_secret or []]
    if copies and keep_secrets is None:
        refuse("settings", "--copy-secret is refused without --keep-secrets; give both")
    settings = read_settings("settings")
    for name in require or []:
        if getattr(settings, name) in (None, ""):
            refuse("settings", f"FLOWCAST_{name.upper()} is not set; set it in the environment or as a file")
    for name in Settings.model_fields:
        value = getattr(settings, name)
        shown = "" if value is None else "(set)" if is_secret(name, value) else str(value)
        out.print(f"FLOWCAST_{name.upper()}={shown}", soft_wrap=True, markup=False)
    if keep_secrets is not None:
        for name in KEPT:
            _keep(keep_secrets / f"flowcast_{name}", getattr(settings, name))
        for name, folder in copies:
            kept = SecretStr((keep_secrets / f"flowcast_{name}").read_text().strip())
            _keep(folder / f"flowcast_{name}", kept)


def _copy_of(given: str) -> tuple[str, Path]:
    name, _, folder = given.partition(":")
    if name not in KEPT or not folder:
        names = ", ".join(KEPT)
        refuse("settings", f"copy_secret={given!r} is refused; it must be NAME:FOLDER, and NAME one of {names}")
    return name, Path(folder)


def _keep(file: Path, given: SecretStr | None) -> None:
    """Write a secret into a file: the one of the settings, else the one in the file, else a new one."""
    try:
        kept = file.read_text().strip() if file.exists() else ""
        secret = kept if given is None else given.get_secret_value()
        created = not secret
        if created:
            secret = secrets.token_urlsafe(24)
        if secret != kept:
            write_private(file, secret)
        if created:
            out.print(f"{file.name} was set nowhere; a new one was created in {file}", soft_wrap=True, markup=False)
    except OSError as problem:
        refuse("settings", f"{file} cannot be written: {(problem.strerror or str(problem)).lower()}")
