"""Links in the documentation lead to files and headings, and decision records have their form."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
HTML = re.compile(r"<(?:a|img|source)\s[^>]*?(?:href|src|srcset)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)


def pages() -> list[Path]:
    """Return the Markdown files of the project."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def prose(page: Path) -> str:
    """Return a page without its code, where brackets are not links."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", "code", text)


def links(text: str) -> Iterator[str]:
    for pattern in (LINK, DEFINITION, HTML):
        yield from pattern.findall(text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, and those that it sets itself."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        n = 0
        while (name := anchor if n == 0 else f"{anchor}-{n}") in found:
            n += 1
        found.add(name)
    return found | set(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", text))


def problem(page: Path, link: str) -> str | None:
    """Return what is wrong with a link of a page, or None."""
    parts = urlsplit(link)
    if parts.scheme:
        is_address = parts.scheme == "mailto" or (parts.scheme in ("http", "https") and "." in parts.netloc)
        return None if is_address else "is no address"
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_relative_to(ROOT):
        return "leads out of the project"
    if not target.exists():
        return "names a file that is not there"
    if parts.fragment and target.suffix == ".md" and unquote(parts.fragment) not in anchors(target):
        return "names a heading that is not there"
    return None


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    found = [(link, problem(page, link)) for link in links(prose(page))]
    assert not [f"{link} {wrong}" for link, wrong in found if wrong]


@pytest.mark.parametrize("record", sorted(ROOT.glob("docs/decisions/0*.md")), ids=lambda record: record.stem)
def test_a_decision_record_has_three_parts_on_one_page(record):
    text = record.read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.splitlines()) <= 60
    assert f"({record.name})" in (record.parent / "README.md").read_text()


def test_pages_and_links_are_found_at_all():
    assert ROOT / "README.md" in pages()
    assert "docs/api.md" in set(links(prose(ROOT / "README.md")))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](page.md)", None),
        ("[a](page.md#two-words)", None),
        ("[a](#the-code-of-it-1)", None),
        ("[a](https://example.org/b)", None),
        ("[a](absent.md)", "names a file that is not there"),
        ("[a](page.md#absent)", "names a heading that is not there"),
        ("[a](https:/example)", "is no address"),
        ("[a]: absent.png", "names a file that is not there"),
        ('<img src="absent.svg">', "names a file that is not there"),
    ],
)
def test_a_broken_link_is_seen(text, wrong, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_docs_links.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"# Two words\n\n## The `code` of it\n\n## The code of it\n\n```\n# [x](no.md)\n```\n\n{text}\n")
    [link] = links(prose(page))
    assert problem(page, link) == wrong
