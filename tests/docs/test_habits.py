"""Workflows, hooks, forms and the citation name what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import grpo_cli
import grpo_verifiers
from tests.docs.pages import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(f for f in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if f.name != "config.yml")


def read(file: Path) -> Any:
    """A YAML file as plain mappings."""
    return YAML(typ="safe").load(file.read_text())


def targets() -> set[str]:
    """The targets of the Makefile that its help lists."""
    return set(re.findall(r"^([\w-]+):.*## ", (ROOT / "Makefile").read_text(), re.M))


def versions(job: dict[str, Any]) -> list[str]:
    """The versions of Python in a job's matrix."""
    found: list[str] = job.get("strategy", {}).get("matrix", {}).get("python", [])
    return found


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_makes_targets_that_are_there(workflow: Path) -> None:
    made = set()
    for job in read(workflow)["jobs"].values():
        for line in (step["run"] for step in job["steps"] if "run" in step):
            name = line.removeprefix("make ")
            made |= set(job["strategy"]["matrix"]["target"]) if "matrix.target" in name else {name}
        assert job["timeout-minutes"]
    assert made and made <= targets()


def test_the_tests_run_on_every_python_from_the_lowest_that_is_promised() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "checks.yml")["jobs"].values()
    (matrix,) = (versions(job) for job in jobs if versions(job))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={matrix[0]}"
    assert matrix == ["3.11", "3.12", "3.13", "3.14"]


def test_both_distributions_promise_the_same_pythons_and_none_that_is_not_tested() -> None:
    matrix = next(v for job in read(WORKFLOWS[0])["jobs"].values() if (v := versions(job)))
    ours, theirs = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in (".", "verifiers")
    )
    named = "Programming Language :: Python :: 3."
    promised, as_well = (
        [line.split(" :: ")[-1] for line in project["classifiers"] if line.startswith(named)]
        for project in (ours, theirs)
    )
    assert promised == as_well
    assert ours["requires-python"] == theirs["requires-python"] == f">={promised[0]}"
    assert set(promised) <= set(matrix)


def test_the_image_is_built_from_what_is_there() -> None:
    said = (ROOT / "Dockerfile").read_text()
    (python,) = re.findall(r"^ARG PYTHON=(\S+)$", said, re.M)
    assert f"Programming Language :: Python :: {python}" in (ROOT / "pyproject.toml").read_text()
    (build,) = re.findall(r"build==\S+", said)
    assert build in (ROOT / "constraints.txt").read_text().split()
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.M)
    assert [name for name in let_in if not (ROOT / name).exists()] == []
    needed = {"LICENSE", "README.md", "constraints.txt", "grpo_cli", "hatch_build.py", "recipes", "verifiers"}
    assert needed | {"pyproject.toml"} <= set(let_in)


def test_the_hooks_run_what_make_check_runs() -> None:
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    entries = " ".join(hook["entry"] for hook in local["hooks"])
    check = (ROOT / "Makefile").read_text().split("\ncheck:")[1].split("\n\n")[0]
    for tool in ("ruff format", "ruff check", "mypy", "tests/architecture", "tests/docs/test_links.py"):
        assert tool in entries and tool in check


@pytest.mark.parametrize("form", FORMS, ids=lambda file: file.stem)
def test_a_form_asks_for_something_and_every_field_has_a_name(form: Path) -> None:
    said = read(form)
    fields = [field for field in said["body"] if field["type"] != "markdown"]
    assert said["name"] and said["description"]
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_citation_is_of_this_version() -> None:
    said = read(ROOT / "CITATION.cff")
    assert said["version"] == grpo_cli.__version__ == grpo_verifiers.__version__ and said["license"] == "Apache-2.0"
    assert said["title"] and said["authors"] and said["cff-version"] == "1.2.0"


def test_the_changelog_begins_with_what_is_not_released() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == "Unreleased" and headings[1].startswith(grpo_cli.__version__)
