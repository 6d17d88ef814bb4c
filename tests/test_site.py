"""The documentation site: it builds without a warning, has the reference made from the code, and loads nothing."""

import html
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import firma
from firma.cli import COMMANDS
from firma.run_config import option_fields
from firma.settings import Hyper, Split

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(find_spec("material") is None, reason="pip install 'firma[docs]'")


def build(folder, config="mkdocs.yml"):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", folder]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def text_of(page):
    """What a reader sees of a page."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", body))


def test_every_document_is_a_page(site):
    for path in (ROOT / "docs").rglob("*.md"):
        name = "index" if path.stem == "README" else path.stem
        assert (site / path.relative_to(ROOT / "docs").parent / f"{name}.html").exists(), path


def test_the_reference_has_every_command_setting_and_name(site):
    commands, settings, names = (
        text_of(site / "reference" / f"{name}.html") for name in ("commands", "settings", "api")
    )
    for name in COMMANDS:
        assert f"firma {name}" in commands, name
    for name in (*option_fields().values(), *Hyper.model_fields, *Split.model_fields):
        assert name in settings, name
    for name in firma.__all__:
        assert f"firma.{name}" in names, name


def test_nothing_is_loaded_from_elsewhere(site):
    loads = re.compile(
        r"<(?:script|img|iframe|source|audio|video)\b[^>]*\bsrc=[\"']?(?:https?:)?//"
        r"|<link\b[^>]*\bhref=[\"']?(?:https?:)?//|url\([\"']?(?:https?:)?//|@import [\"'](?:https?:)?//"
    )
    for path in (*site.rglob("*.html"), *site.rglob("*.css")):
        found = loads.search(path.read_text())
        assert not found, f"{path.relative_to(site)}: {found[0]}"


def test_links_to_source_files_lead_to_pages(site):
    page = (site / "your-method.html").read_text()
    (target,) = re.findall(r'href="([^"]*fedprox\.py[^"]*)"', page)
    assert "change_gradient" in text_of((site / target).resolve())
