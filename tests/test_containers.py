"""Dockerfile, docker-compose.yml and what goes with them, as far as it shows without a container engine."""

import json
import os
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from click.testing import CliRunner as ClickRunner
from distributed.cli import dask_scheduler, dask_worker
from typer.testing import CliRunner, Result

from app.cli import cli
from app.settings import settings_from_environment

pytestmark = pytest.mark.usefixtures("fresh_settings")

ROOT = Path(__file__).parents[1]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
SERVICES = yaml.safe_load(COMPOSE)["services"]
MONITORING = ("prometheus", "grafana")
DASK = ("dask-scheduler", "dask-worker")
OURS = [name for name, service in SERVICES.items() if service["image"] == "flowcast:local" and name not in DASK]
WITH_PROFILE = {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service}
DOCKERFILE = (ROOT / "Dockerfile").read_text()
EXAMPLE = (ROOT / ".env.example").read_text()
DONE, HEALTHY = "service_completed_successfully", "service_healthy"


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, each with its arguments on one line."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(name.upper(), rest.strip()) for name, rest in re.findall(r"^([A-Z]+)\s+(.*)$", whole, re.MULTILINE)]


def final_stage() -> list[tuple[str, str]]:
    found = instructions()
    return found[max(i for i, (name, _) in enumerate(found) if name == "FROM") :]


def flowcast(*command: str, **environment: str) -> Result:
    """Run a command of Flowcast with these settings and no others."""
    others = {name: None for name in os.environ if name.startswith("FLOWCAST_")}
    settings_from_environment.cache_clear()
    return CliRunner().invoke(cli, command, env=others | environment)


class TestDockerfile:
    def test_two_stages_from_plain_names(self):
        bases = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
        assert len(bases) == 2
        assert all(re.fullmatch(r"python:[\w.-]+", base) for base in bases), bases

    def test_no_host_is_named_and_no_buildkit_is_needed(self):
        assert "://" not in DOCKERFILE.replace("http://127.0.0.1:8000", "")
        assert not re.search(r"--mount|--link|--chmod|<<|index-url|trusted-host|# *syntax", DOCKERFILE)

    def test_what_is_final_builds_nothing_and_is_not_root(self):
        stage = final_stage()
        ran = " ".join(rest for name, rest in stage if name == "RUN")
        assert not re.search(r"\b(pip|apt-get|gcc)\b", ran)
        [user] = [rest for name, rest in stage if name == "USER"]
        assert all(part.isdigit() and int(part) > 0 for part in user.split(":"))
        order = [name for name, _ in stage]
        assert order.index("USER") < order.index("ENTRYPOINT")

    def test_entry_and_healthcheck(self):
        stage = dict(final_stage())
        assert json.loads(stage["ENTRYPOINT"]) == ["flowcast"]
        assert "/livez" in stage["HEALTHCHECK"]

    def test_version_and_revision_are_arguments_and_labels(self):
        arguments = dict(rest.split("=") for name, rest in final_stage() if name == "ARG")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert arguments == {"VERSION": project["version"], "REVISION": "unknown"}
        assert f"VERSION: ${{FLOWCAST_VERSION:-{project['version']}}}" in COMPOSE
        assert f"#FLOWCAST_VERSION={project['version']}\n" in EXAMPLE
        [labels] = [rest for name, rest in final_stage() if name == "LABEL"]
        assert 'image.version="${VERSION}"' in labels
        assert 'image.revision="${REVISION}"' in labels
        [variables] = [rest for name, rest in final_stage() if name == "ENV"]
        assert "FLOWCAST_BUILD_REVISION=${REVISION}" in variables  # which /metrics tells

    def test_every_package_of_the_project_is_copied(self):
        packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
        copied = {part for name, rest in instructions() if name == "COPY" for part in rest.split()}
        assert {package.split(".")[0] for package in packages} <= copied

    @pytest.mark.parametrize(
        "path", [".git", ".venv", ".demo", ".env", "tests", "docs", "flowcast.db", "models", "data"]
    )
    def test_what_the_image_is_not_made_of_stays_out(self, path):
        assert ignored(path)

    def test_what_the_image_is_made_of_goes_in(self):
        sources = {part for name, rest in instructions() if name == "COPY" for part in rest.split()[:-1]}
        sources = {source for source in sources if not source.startswith(("--from", "/"))}
        assert {"requirements/runtime.txt", "requirements/cluster.txt"} <= sources
        assert not [source for source in sources if ignored(source.split("/")[0])]
        assert not [source for source in sources if not (ROOT / source).exists()]


def ignored(path: str) -> bool:
    """Return whether .dockerignore excludes a top-level file or folder; the last matching line decides."""
    out = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#") and fnmatch(path, line.removeprefix("!")):
            out = not line.startswith("!")
    return out


class TestCompose:
    def test_all_parts_are_there(self):
        assert {name for name in SERVICES if name not in WITH_PROFILE} == {
            "settings",
            "database",
            "migration",
            "service",
            "worker",
        }
        assert {
            "demo": ["demo"],
            **{name: ["cluster"] for name in DASK},
            **{name: ["monitoring"] for name in MONITORING},
        } == WITH_PROFILE

    @pytest.mark.parametrize(
        ("name", "needs"),
        [
            ("database", {"settings": DONE}),
            ("migration", {"database": HEALTHY}),
            ("service", {"database": HEALTHY, "migration": DONE}),
            ("worker", {"database": HEALTHY, "migration": DONE, "dask-scheduler": HEALTHY}),
            ("dask-worker", {"dask-scheduler": HEALTHY}),
            ("demo", {"migration": DONE, "service": HEALTHY}),
            ("grafana", {"settings": DONE}),
        ],
    )
    def test_each_waits_for_what_it_needs(self, name, needs):
        assert {other: how["condition"] for other, how in SERVICES[name]["depends_on"].items()} == needs

    def test_whoever_is_waited_for_can_be(self):
        for service in SERVICES.values():
            for other, how in service.get("depends_on", {}).items():
                if how["condition"] == HEALTHY:
                    assert SERVICES[other]["healthcheck"]["test"]
                else:
                    assert SERVICES[other]["restart"] == "no"

    def test_up_can_wait_for_all_that_goes_on_running(self):
        # `up --wait` takes a disabled healthcheck for a failure, unless the container is one that ends.
        disabled = {name for name, service in SERVICES.items() if service["healthcheck"].get("disable")}
        assert disabled == {name for name, service in SERVICES.items() if service["restart"] == "no"}

    @pytest.mark.parametrize("name", OURS)
    def test_ours_are_not_root_and_write_to_models_and_tmp_alone(self, name):
        service = SERVICES[name]
        assert service["user"] == "10001:10001"
        assert service["user"] == dict(final_stage())["USER"]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["tmpfs"] == ["/tmp"]
        # All mount the models, because a volume of the image would otherwise get an anonymous one.
        models, *secrets = service["volumes"]
        assert models == "models:/var/lib/flowcast/models"
        assert name == "settings" or all(one.endswith("-secrets:/var/lib/flowcast/secrets:ro") for one in secrets)

    def test_each_has_its_own_secrets_alone(self):
        copied: dict[str, set[str]] = {}
        for word in SERVICES["settings"]["command"]:
            if word.startswith("--copy-secret="):
                name, folder = word.removeprefix("--copy-secret=").split(":")
                copied.setdefault(folder, set()).add(name)
        mounted = dict(reversed(one.split(":")) for one in SERVICES["settings"]["volumes"])
        held = {mounted[folder]: names for folder, names in copied.items()}
        found = {}
        for name, service in SERVICES.items():
            volumes = [one.split(":")[0] for one in service.get("volumes", [])]
            assert name == "settings" or "secrets" not in volumes  # which holds all of them
            found[name] = set().union(*(held.get(volume, set()) for volume in volumes))
            assert name == "settings" or "secrets" not in service
        assert found.pop("settings") == {"admin_key", "database_password", "grafana_password"}
        assert {name: secrets for name, secrets in found.items() if secrets} == {
            "database": {"database_password"},
            "migration": {"database_password"},
            "worker": {"database_password"},
            "service": {"admin_key", "database_password"},
            "demo": {"admin_key", "database_password"},
            "grafana": {"grafana_password"},
        }
        with_bucket = {name for name, service in SERVICES.items() if "AWS_SECRET_ACCESS_KEY" in str(service)}
        assert with_bucket == {"service", "worker", "demo"}

    @pytest.mark.parametrize("name", SERVICES)
    def test_each_has_bounds_and_gains_no_privileges(self, name):
        service = SERVICES[name]
        for bound in ("mem_limit", "cpus"):
            default = re.sub(r"^\$\{[A-Z_]+:-(.*)\}$", r"\1", str(service[bound]))
            assert re.fullmatch(r"\d+[mg]" if bound == "mem_limit" else r"[12]", default), default
        assert 0 < service["pids_limit"] <= 1024
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True

    def test_the_database_has_only_the_privileges_for_its_folder(self):
        database = SERVICES["database"]
        assert database["cap_add"] == ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]
        assert database["tmpfs"] == ["/tmp", "/var/run/postgresql"]
        assert [name for name, service in SERVICES.items() if "cap_add" in service] == ["database"]

    @pytest.mark.parametrize("name", MONITORING)
    def test_what_watches_is_not_root_and_writes_to_its_volume_alone(self, name):
        service = SERVICES[name]
        assert int(service["user"].split(":")[0]) > 0
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        files, volume, *secrets = service["volumes"]
        source, _, mode = files.split(":")
        assert (ROOT / source).is_dir()
        assert mode == "ro"
        assert volume.split(":")[0] == name
        assert all(one == f"{name}-secrets:/var/lib/flowcast/secrets:ro" for one in secrets)

    @pytest.mark.parametrize("name", DASK)
    def test_dask_is_not_root_writes_to_memory_alone_and_has_no_secrets(self, name):
        service = SERVICES[name]
        assert (service["user"], service["read_only"], service["cap_drop"]) == ("10001:10001", True, ["ALL"])
        assert service["tmpfs"] == ["/tmp", "/var/lib/flowcast/models"]
        assert "volumes" not in service
        assert "secrets" not in service
        assert not [variable for variable in service.get("environment", {}) if variable.startswith("FLOWCAST_")]

    def test_only_the_worker_reaches_the_cluster_and_has_its_address(self):
        assert yaml.safe_load(COMPOSE)["networks"]["cluster"] == {"internal": True}
        assert {name for name, service in SERVICES.items() if "cluster" in service["networks"]} == {"worker", *DASK}
        assert {tuple(SERVICES[name]["networks"]) for name in DASK} == {("cluster",)}
        # Without the profile there is no such service to wait for.
        assert SERVICES["worker"]["depends_on"]["dask-scheduler"]["required"] is False
        [default] = re.findall(r"-(.*)}", SERVICES["worker"]["environment"]["FLOWCAST_DASK_SCHEDULER"])
        assert default == SERVICES["dask-worker"]["command"][0] == "tcp://dask-scheduler:8786"
        assert SERVICES["dask-scheduler"]["command"][:2] == ["--port", "8786"]

    def test_what_serves_starts_again_and_no_log_grows_for_ever(self):
        for service in SERVICES.values():
            assert service["logging"]["options"].keys() == {"max-size", "max-file"}
        assert {SERVICES[name]["restart"] for name in ("database", "service", "worker", *MONITORING)} == {
            "unless-stopped"
        }

    def test_the_service_alone_is_reached_from_outside_and_can_be_scaled(self):
        assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
            "service": ["${FLOWCAST_PUBLISH_ADDRESS:-127.0.0.1}:8000-8009:8000"],
            "prometheus": ["127.0.0.1:${FLOWCAST_PROMETHEUS_PORT:-9090}:9090"],
            "grafana": ["127.0.0.1:${FLOWCAST_GRAFANA_PORT:-3000}:3000"],
        }
        assert not [name for name, service in SERVICES.items() if "container_name" in service]

    def test_what_is_under_way_has_time_to_finish(self):
        from app.commands.serve import FINISH_SECONDS, STOP_SECONDS

        grace = {name: int(SERVICES[name]["stop_grace_period"].removesuffix("s")) for name in ("service", "worker")}
        assert grace["service"] > FINISH_SECONDS
        assert grace["worker"] > STOP_SECONDS

    def test_the_database_lies_in_a_volume_with_a_name(self):
        assert SERVICES["database"]["volumes"][0] == "database:/var/lib/postgresql/data"
        assert yaml.safe_load(COMPOSE)["volumes"].keys() == {
            "database",
            "models",
            "secrets",
            "service-secrets",
            "database-secrets",
            "grafana-secrets",
            "prometheus",
            "grafana",
        }

    def test_one_image_builds_for_all_and_no_registry_is_named(self):
        images = {service["image"] for service in SERVICES.values()}
        assert {image.split(":")[0] for image in images} == {
            "flowcast",
            "postgres",
            "prom/prometheus",
            "grafana/grafana",
        }
        assert all(re.fullmatch(r"v?\d+\.\d+\.\d+", SERVICES[name]["image"].split(":")[1]) for name in MONITORING)
        assert all(SERVICES[name]["build"]["context"] == "." for name in (*OURS, *DASK))

    def test_commands_and_options_are_ones_that_flowcast_has(self):
        for name in OURS:
            words = SERVICES[name]["command"]
            command = words[:2] if words[0] == "db" else words[:1]
            helped = flowcast(*command, "--help", COLUMNS="200")
            assert helped.exit_code == 0, helped.stderr
            assert not [word for word in words if word.startswith("--") and word.split("=")[0] not in helped.stdout]

    @pytest.mark.parametrize("name", DASK)
    def test_options_are_ones_that_dask_has(self, name):
        words = [*SERVICES[name]["entrypoint"], *SERVICES[name]["command"]]
        command = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}[words[words.index("dask") + 1]]
        helped = ClickRunner().invoke(command, ["--help"], env={"COLUMNS": "200"})
        assert helped.exit_code == 0, helped.stderr
        options = [word.split("=")[0] for word in words if word.startswith("--")]
        assert options
        assert not [option for option in options if option not in helped.stdout]

    def test_the_example_names_every_variable_and_nothing_else(self):
        text = "\n".join(line for line in COMPOSE.splitlines() if not line.lstrip().startswith("#"))
        read = set(re.findall(r"\$\{([A-Z_]+)", text))
        assert read == set(re.findall(r"^#?([A-Z][A-Z_]+)=", EXAMPLE, re.MULTILINE))

    def test_every_variable_for_flowcast_is_a_setting(self):
        from app.settings import Settings

        given = {**SERVICES["service"]["environment"], **SERVICES["settings"]["environment"]}
        given.pop("FLOWCAST_SECRETS")  # the folder of the others
        given = {name for name in given if not name.startswith("AWS_")}  # which the object store's client reads
        assert not [name for name in given if name.removeprefix("FLOWCAST_").lower() not in Settings.model_fields]

    def test_every_setting_can_be_set_but_those_that_hold_the_parts_together(self):
        from app.settings import Settings

        fixed = {"database_url", "model_cache", "auth", "admin_key_file", "build_revision"}
        named = set(re.findall(r"^#?FLOWCAST_([A-Z_]+)=", EXAMPLE, re.MULTILINE))
        assert not [name for name in Settings.model_fields if name not in fixed and name.upper() not in named]

    def test_defaults_are_those_of_the_settings(self):
        from app.settings import Settings

        defaults = dict(re.findall(r"^#(FLOWCAST_[A-Z_]+)=(.*)$", EXAMPLE, re.MULTILINE))
        for name, field in Settings.model_fields.items():
            if (variable := f"FLOWCAST_{name.upper()}") in defaults:
                assert type(field.default)(defaults[variable]) == field.default, variable
                in_compose = SERVICES["service"]["environment"][variable]
                assert in_compose in (f"${{{variable}:-{defaults[variable]}}}", f"${{{variable}-}}")


class TestSecrets:
    """The container ``settings``, which all others wait for."""

    good: ClassVar = {
        "FLOWCAST_ADMIN_KEY": "8d0c4aa2f9f14f5e",
        "FLOWCAST_DATABASE_PASSWORD": "5b31 p@ss/w:rd%",
        "FLOWCAST_GRAFANA_PASSWORD": "f2 7c#0b/9e:41%aa",
    }
    url: ClassVar = {"FLOWCAST_DATABASE_URL": SERVICES["settings"]["environment"]["FLOWCAST_DATABASE_URL"]}

    @pytest.fixture
    def folder(self, tmp_path):
        return tmp_path / "secrets"

    @pytest.fixture
    def check(self, folder):
        command, option, *_ = SERVICES["settings"]["command"]
        option = option.split("=")[0]
        return lambda **environment: flowcast(command, option, str(folder), **self.url | environment)

    def test_copies_are_like_what_is_kept_and_follow_it(self, folder, tmp_path):
        own = tmp_path / "own"
        words = ["settings", "--keep-secrets", str(folder), "--copy-secret", f"admin_key:{own}"]
        for given in (self.good, self.good | {"FLOWCAST_ADMIN_KEY": "another-key-of-enough-length"}):
            assert flowcast(*words, **self.url, **given).exit_code == 0
            assert self.kept(own) == {"FLOWCAST_ADMIN_KEY": given["FLOWCAST_ADMIN_KEY"]}
            assert {file.stat().st_mode & 0o777 for file in own.iterdir()} == {0o600}

    @pytest.mark.parametrize("given", ["admin_kee:/tmp", "admin_key", "admin_key:"])
    def test_a_copy_of_nothing_is_refused_by_name(self, given, folder):
        refused = flowcast("settings", "--keep-secrets", str(folder), "--copy-secret", given, **self.url)
        assert refused.exit_code == 2
        assert f"--copy-secret={given!r} is refused; it must be NAME:FOLDER" in refused.stderr

    def test_copies_need_a_place_to_be_kept(self):
        refused = flowcast("settings", "--copy-secret", "admin_key:/tmp", **self.url)
        assert refused.exit_code == 2
        assert "--copy-secret is refused without --keep-secrets" in refused.stderr

    @staticmethod
    def kept(folder: Path) -> dict[str, str]:
        return {file.name.upper(): file.read_text().strip() for file in folder.iterdir()}

    def test_good_ones_are_taken_kept_and_not_shown(self, check, folder):
        checked = check(**self.good)
        assert self.kept(folder) == self.good
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
        assert checked.exit_code == 0, checked.stderr
        assert "FLOWCAST_ADMIN_KEY=(set)" in checked.stdout
        assert "FLOWCAST_DATABASE_URL=(set)" in checked.stdout
        assert not [secret for secret in self.good.values() if secret in checked.stdout + checked.stderr]
        assert "p%40ss" not in checked.stdout

    @pytest.mark.parametrize("name", sorted(good))
    def test_the_placeholder_of_the_example_is_refused_in_one_line(self, name, check, folder):
        [placeholder] = re.findall(rf"^{name}=(.+)$", EXAMPLE, re.MULTILINE)
        refused = check(**self.good | {name: placeholder})
        assert not folder.exists()
        assert refused.exit_code == 2
        [line] = refused.stderr.splitlines()
        assert line.startswith(f"flowcast settings: {name} is refused; ")
        assert "placeholder" in line

    @pytest.mark.parametrize("command", [["serve", "--port", "0"], ["worker"], ["db", "upgrade"]])
    def test_nothing_else_starts_with_a_placeholder_either(self, command):
        refused = flowcast(*command, **self.url, **self.good | {"FLOWCAST_DATABASE_PASSWORD": "change-me"})
        assert refused.exit_code == 2
        assert len(refused.stderr.splitlines()) == 1
        assert "FLOWCAST_DATABASE_PASSWORD is refused" in refused.stderr

    def test_those_set_nowhere_are_made_once(self, check, folder):
        made = check()
        assert made.exit_code == 0, made.stderr
        first = self.kept(folder)
        assert first.keys() == self.good.keys()
        assert all(len(secret) >= 32 for secret in first.values())
        assert not [secret for secret in first.values() if secret in made.stdout]
        assert str(folder / "flowcast_admin_key") in made.stdout
        check()
        assert self.kept(folder) == first
        check(FLOWCAST_ADMIN_KEY=self.good["FLOWCAST_ADMIN_KEY"])
        assert self.kept(folder) == first | {"FLOWCAST_ADMIN_KEY": self.good["FLOWCAST_ADMIN_KEY"]}

    def test_the_others_start_with_what_was_kept(self, check, folder):
        check()
        shown = flowcast("settings", "--require", "admin_key", FLOWCAST_SECRETS=str(folder), **self.url)
        assert shown.exit_code == 0, shown.stderr
        assert SERVICES["database"]["environment"]["POSTGRES_PASSWORD_FILE"] == (
            f"{SERVICES['service']['environment']['FLOWCAST_SECRETS']}/flowcast_database_password"
        )

    def test_grafana_starts_with_what_was_kept_and_may_read_it(self):
        file = SERVICES["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"]
        assert file == f"{SERVICES['service']['environment']['FLOWCAST_SECRETS']}/flowcast_grafana_password"
        owners = {SERVICES[name]["user"].split(":")[0] for name in ("grafana", "settings")}
        assert len(owners) == 1

    def test_a_folder_that_cannot_be_written_is_named_in_one_line(self, check, folder):
        folder.write_text("a file where the folder should be")
        refused = check()
        assert refused.exit_code == 2
        [line] = refused.stderr.splitlines()
        assert line.startswith(f"flowcast settings: {folder}")

    @pytest.mark.parametrize("name", sorted(good))
    def test_one_that_is_required_and_missing_is_named_in_one_line(self, name):
        given = {other: secret for other, secret in self.good.items() if other != name}
        setting = name.removeprefix("FLOWCAST_").lower()
        refused = flowcast("settings", "--require", setting, **self.url, **given)
        assert refused.exit_code == 2
        assert refused.stderr.splitlines() == [
            f"flowcast settings: {name} is not set; set it in the environment or as a file"
        ]

    def test_from_files_where_variables_are_empty(self, check, tmp_path, folder):
        for name, secret in self.good.items():
            (tmp_path / name.lower()).write_text(f"{secret}\n")
        checked = check(FLOWCAST_SECRETS=str(tmp_path), **dict.fromkeys(self.good, ""))
        assert checked.exit_code == 0, checked.stderr
        assert self.kept(folder) == self.good
        assert {name.lower() for name in self.good} == set(yaml.safe_load(COMPOSE)["secrets"])

    def test_the_files_for_no_secret_are_empty(self):
        defaults = {
            re.sub(r"^\$\{[A-Z_]+:-(.*)\}$", r"\1", one["file"]) for one in yaml.safe_load(COMPOSE)["secrets"].values()
        }
        assert [(ROOT / name).read_text() for name in defaults] == [""]

    def test_a_setting_that_does_not_exist_cannot_be_required(self):
        refused = flowcast("settings", "--require", "admin_kee")
        assert refused.exit_code == 2
        assert "require='admin_kee' is refused" in refused.stderr
