"""The page and its files over HTTP."""

import re

import pytest
from starlette.testclient import TestClient

from app.dashboard.routes import STATIC
from app.main import create_app
from app.settings import Switch

FOLDER = re.compile(r"dashboard/[0-9a-f]{16}")


@pytest.fixture
def database_url(tmp_path):
    """Return the address of a new database; one kind is enough, because the page itself reads none."""
    return f"sqlite:///{tmp_path}/flowcast.db"


@pytest.fixture
def page(client):
    return client.get("/", headers={"X-API-Key": ""})


class TestPage:
    def test_needs_no_key_and_is_not_in_the_document(self, page, openapi_document):
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        paths = openapi_document["paths"]
        assert "/" not in paths
        assert not [path for path in paths if "dashboard" in path]

    def test_scripts_and_styles_are_files_of_its_own(self, page):
        policy = page.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "style-src 'self';" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<script(?![^>]*\ssrc=)|<style| style=| on[a-z]+=", page.text)
        assert not re.search(r"https?://", page.text)

    def test_only_one_text_becomes_markup(self, page):
        assert "trusted-types default" in page.headers["content-security-policy"]
        assert (STATIC / "trusted_types.js").read_text().count("createHTML") == 1
        assert 'text === "<svg/>" ? text : null' in (STATIC / "trusted_types.js").read_text()

    def test_every_file_it_names_is_there_and_may_be_kept_for_good(self, client, page):
        names = re.findall(r'(?:src|href)="(dashboard/[^"]+)"', page.text)
        modules = {path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js")}
        leaflet = {"leaflet/leaflet.js", "leaflet/leaflet.css"}
        assert {name.split("/", 2)[2] for name in names} == modules | leaflet | {"page.css", "icon.svg"}
        for name in names:
            answer = client.get(f"/{name}")
            assert answer.status_code == 200
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert client.get(f"/{name}", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304

    def test_images_come_from_elsewhere_only_with_a_base_map(self, settings, page):
        assert "img-src 'self';" in page.headers["content-security-policy"]
        tiles = {"map_tiles": "https://tiles.example:8443/{z}/{x}/{y}.png", "map_attribution": 'Roads "A" & <b>B</b>'}
        with TestClient(create_app(settings.model_copy(update=tiles))) as client:
            mapped = client.get("/", headers={"If-None-Match": page.headers["etag"]})
        assert mapped.status_code == 200
        policy = mapped.headers["content-security-policy"]
        assert "img-src 'self' https://tiles.example:8443;" in policy
        assert policy.replace(" https://tiles.example:8443", "") == page.headers["content-security-policy"]
        assert 'content="https://tiles.example:8443/{z}/{x}/{y}.png"' in mapped.text
        assert 'content="Roads &quot;A&quot; &amp; &lt;b&gt;B&lt;/b&gt;"' in mapped.text

    def test_it_is_sent_again_only_when_it_changed(self, client, page):
        assert page.headers["cache-control"] == "no-cache"
        assert client.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
        assert client.get("/", headers={"If-None-Match": '"another"'}).status_code == 200

    def test_nothing_else_is_served(self, client, page):
        folder = FOLDER.search(page.text)[0]
        for path in (f"/{folder}/index.html", f"/{folder}/../routes.py", f"/{folder}/%2e%2e/routes.py", f"/{folder}/",
                     "/dashboard/0000000000000000/main.js"):  # fmt: skip
            answer = client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert client.post("/").status_code == 405

    def test_works_below_a_prefix(self, settings):
        prefixed = settings.model_copy(update={"root_path": "/flowcast"})
        with TestClient(create_app(prefixed)) as client:
            page = client.get("/flowcast/")
            assert page.status_code == 200
            assert client.get(f"/flowcast/{FOLDER.search(page.text)[0]}/main.js").status_code == 200

    def test_shows_whether_a_key_is_needed(self, settings, page):
        assert 'name="flowcast-keys" content="on"' in page.text
        with TestClient(create_app(settings.model_copy(update={"auth": Switch.OFF}))) as client:
            opened = client.get("/", headers={"If-None-Match": page.headers["etag"]})
        assert 'name="flowcast-keys" content="off"' in opened.text

    def test_requests_are_counted_by_template(self, client, page):
        client.get(f"/{FOLDER.search(page.text)[0]}/main.js")
        response = client.get("/metrics").text
        assert 'route="/dashboard/{digest}/{name:path}"' in response
        assert "main.js" not in response


def test_no_module_turns_text_into_markup_or_code():
    for path in STATIC.rglob("*.js"):
        found = re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", path.read_text()
        )
        assert found is None, f"{path.name}: {found[0]}"


def test_no_module_names_another_host():
    for path in STATIC.rglob("*"):
        if path.is_file():
            hosts = set(re.findall(r"https?://([\w.-]+)", path.read_text()))
            assert hosts <= {"www.w3.org"}, path.name  # the namespace of SVG, which is not requested
