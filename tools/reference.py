"""The reference pages of the documentation site, written from the code: commands, settings, Python API.

What a command prints with --help, and these pages, come from the same objects, so they cannot disagree.
`python tools/reference.py FOLDER` writes the pages as files; `make docs` puts them into the site.
"""

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import firma
from firma.cli import COMMANDS, command
from firma.methods import METHODS
from firma.run_config import PYTHON_ONLY, RunConfig, descriptions, option_fields
from firma.settings import PAPER_SYMBOLS, PRESETS, Hyper, Split, hyper_for, split_for

# The commands by what somebody wants to do. One that is in no group is listed last, under OTHERS.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Simulate and compare": ("run", "watch", "sweep", "report", "methods", "models", "topology", "ring", "flower"),
    "Data": ("data", "split"),
    "After training": ("predict", "evaluate", "export"),
    "The paper's study": ("reproduce", "advise"),
    "A real ring": (
        "init",
        "ring-file",
        "accept",
        "doctor",
        "join",
        "status",
        "stop",
        "audit",
        "backup",
        "restore",
    ),
}
OTHERS = "Other commands"
API_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Run": ("run", "run_all", "RunConfig", "Hyper", "BadInput"),
    "Results": ("Result", "load", "load_results", "to_frame", "compare", "better", "Comparison", "Statistic"),
    "Trained models": ("load_model", "TrainedModel", "SplitModel"),
    "Data": ("Dataset", "load_dataset", "natural"),
    "Methods": ("METHODS", "Method", "ablations", "Algorithm", "ClientRound", "ServerRound", "LocalStep", "Step"),
}


def groups(known: Mapping[str, tuple[str, ...]], names: list[str], rest: str) -> dict[str, list[str]]:
    """The names in their groups; those that no group lists come last."""
    found = {title: [name for name in group if name in names] for title, group in known.items()}
    others = [name for name in names if not any(name in group for group in found.values())]
    return {title: group for title, group in {**found, rest: others}.items() if group}


def _cell(text: str) -> str:
    """Text as a cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").split())


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _command_section(words: str, found: Any, level: int) -> Iterator[str]:
    """A command, or a group with its commands: its sentence, how it is called, its arguments and options."""
    yield f"{'#' * level} `{words}`"
    text = inspect.cleandoc(found.help or "")
    yield re.sub(r"^Example: (.*)$", r"```console\n$ \1\n```", text, flags=re.MULTILINE)
    if commands := getattr(found, "commands", None):
        for name, each in commands.items():
            yield from _command_section(f"{words} {name}", each, level + 1)
        return
    context = found.context_class(found, info_name=words)
    shown = [each for each in found.params if not each.hidden]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    usage = " ".join(each.name.upper() if each.required else f"[{each.name.upper()}]" for each in arguments)
    yield f"```text\n{words} [OPTIONS] {usage}".rstrip() + "\n```"
    rows = []
    for each in shown:
        name, meaning = each.get_help_record(context)
        if each in arguments:
            name = each.name.upper()
        rows.append((f"`{name}`", _cell(meaning)))
    if rows:
        yield _table(("argument or option", "meaning"), rows)
    if found.epilog:
        yield "`--set` takes any of the [settings](settings.md)."


def commands_page() -> str:
    """Every command with its arguments and options."""
    parts = [
        "# Commands",
        "This page is made from the program itself: it says what `firma COMMAND --help` says. Commands that print "
        "results have `--json`; `firma --install-completion` completes commands, options and values in your shell. "
        "Exit codes: 0 done, 1 a check failed or the disk is full, 2 wrong input, 3 the other members of a ring did "
        "not appear or refuse, 130 interrupted.",
    ]
    for title, names in groups(GROUPS, list(COMMANDS), OTHERS).items():
        parts.append(f"## {title}")
        for name in names:
            parts.extend(_command_section(f"firma {name}", command(name), 3))
    return "\n\n".join(part for part in parts if part) + "\n"


def _spelled(value: object) -> str:
    return "none" if value is None else str(value)


def _settings_table(kind: Any, numbers: Callable[[str], Any]) -> str:
    """The settings of one class: meaning, default, and their values under each preset."""
    symbols = {name: symbol for symbol, name in PAPER_SYMBOLS.items()}
    values = {preset: numbers(preset) for preset in PRESETS}
    rows = []
    for name, field in kind.model_fields.items():
        symbol = f" (also `{symbols[name]}`)" if name in symbols else ""
        found = [_spelled(getattr(values[preset], name)) for preset in PRESETS]
        rows.append((f"`{name}`{symbol}", _cell(field.description or ""), *map(_cell, found)))
    return _table(("setting", "meaning", *PRESETS), rows)


def settings_page() -> str:
    """Every option of a run and every setting, from the fields of their classes."""
    options = {field: option for option, field in option_fields().items()}
    defaults = {
        each.name: each.default if each.default is not dataclasses.MISSING else "none"
        for each in dataclasses.fields(RunConfig)
    }
    rows = [
        (
            f"`{name}`",
            "Python only" if name in PYTHON_ONLY else f"`--{options[name].replace('_', '-')}`",
            _cell(meaning),
            _cell(_spelled(defaults[name])),
        )
        for name, meaning in descriptions().items()
    ]
    recommended = []
    for method in METHODS:
        changed = hyper_for(method, "recommended", {}).model_dump()
        usual = Hyper().model_dump()
        said = ", ".join(f"{name}={value}" for name, value in changed.items() if value != usual[name])
        recommended.append((f"`{method}`", f"`{said}`" if said else "the defaults"))
    return (
        "\n\n".join(
            [
                "# Settings",
                "This page is made from the fields of `firma.RunConfig`, `firma.Hyper` and the split's settings.",
                "## Options of a run",
                "They are parameters of `firma.run` and `firma.RunConfig`, options of `firma run`, and keys of a TOML "
                "file (there with underscores, and `set` for `settings`).",
                _table(("parameter", "option", "meaning", "default"), rows),
                "## Settings of a method",
                "`--set NAME=VALUE`, `settings={...}` or the table `[set]` of a TOML file changes any of them. The "
                "columns are the presets, with the values of `fibfl++`.",
                _settings_table(Hyper, lambda preset: hyper_for("fibfl++", preset, {})),
                "## Settings of the split",
                "The same for all methods of a comparison.",
                _settings_table(Split, lambda preset: split_for(preset, {})),
                "## Where methods differ from the defaults",
                "Under the preset `recommended`; the defaults are those of `firma.Hyper()`.",
                _table(("method", "settings"), recommended),
            ]
        )
        + "\n"
    )


def _type_name(annotation: object) -> str:
    """A type as it is written, without the package's inner module names."""
    if annotation is inspect.Parameter.empty:
        return ""
    if get_origin(annotation) is not None and hasattr(annotation, "__metadata__"):
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Union:
        return " | ".join(_type_name(each) for each in get_args(annotation))
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", text).replace("NoneType", "None")
    return re.sub(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]", r"ndarray", text)


def _signature(name: str, found: Any) -> str:
    """A call with its parameters, one per line when they do not fit into one; descriptions are in the docstring."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return name
    parts, keyword_only = [], False
    for each in signature.parameters.values():
        if each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            parts.append("*")
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        keyword_only = keyword_only or stars == "*"
        hint = f": {kind}" if (kind := _type_name(each.annotation)) else ""
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        parts.append(f"{stars}{each.name}{hint}{default}")
    result = f" -> {kind}" if (kind := _type_name(signature.return_annotation)) and not inspect.isclass(found) else ""
    line = f"{name}({', '.join(parts)}){result}"
    return line if len(line) <= 100 else f"{name}(\n    " + ",\n    ".join(parts) + f",\n){result}"


def _default(value: object) -> str:
    text = repr(value)
    return "..." if text.startswith("<") or len(text) > 60 else text


def _prose(text: str) -> str:
    """A docstring as Markdown: paragraphs as they are, indented and doctest parts as code."""
    parts: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = paragraph.splitlines()
        indented = next((number for number, line in enumerate(lines) if line.startswith((" ", ">>>"))), len(lines))
        if indented:
            parts.append("\n".join(lines[:indented]).replace("<", "&lt;"))
        if lines[indented:]:
            parts.append("```text\n" + "\n".join(line.removeprefix("    ") for line in lines[indented:]) + "\n```")
    return "\n\n".join(parts)


def _own_members(found: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class, or one of the package's own classes above it, defines."""
    seen = set()
    for kind in found.__mro__:
        if not kind.__module__.startswith("firma"):
            continue
        for name, member in vars(kind).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member):
                yield name, member


def _class_parts(name: str, found: type) -> Iterator[str]:
    """A class: how it is made, what it is, its fields and its methods."""
    on_settings_page = name in ("RunConfig", "Hyper")
    if not issubclass(found, BaseException) and not on_settings_page:
        yield f"```python\n{_signature(name, found)}\n```"
    yield _prose(found.__doc__ or "")
    if on_settings_page:
        yield "Its fields are on the page [settings](settings.md)."
    for member, value in _own_members(found):
        if isinstance(value, property):
            shown = f"{name}.{member}"
            yield f"#### `{shown}`\n\n" + _prose(value.__doc__ or "")
        else:
            function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            yield f"#### `{name}.{member}`"
            yield f"```python\n{_signature(member, function)}\n```"
            yield _prose(function.__doc__ or "")


def api_page() -> str:
    """Every public name with its signature and docstring."""
    public = [name for name in firma.__all__ if name not in ("__version__", "Config")]
    parts = [
        "# Python API",
        "This page is made from the docstrings of the names that `import firma` gives. `firma.__version__` is the "
        "version; `firma.Config` is the name that `firma.RunConfig` had in version 0.1.",
    ]
    for title, names in groups(API_GROUPS, public, "Others").items():
        parts.append(f"## {title}")
        for name in names:
            found = getattr(firma, name)
            parts.append(f"### `firma.{name}`")
            if inspect.isclass(found):
                parts.extend(_class_parts(name, found))
            elif callable(found):
                parts.append(f"```python\n{_signature(name, found)}\n```")
                parts.append(_prose(found.__doc__ or ""))
            else:
                parts.append(
                    f"The rows of the [design table](../methods.md#the-design-table) by name: {_names(found)}."
                )
    return "\n\n".join(part for part in parts if part) + "\n"


def _names(found: Mapping[str, object]) -> str:
    return ", ".join(f"`{name}`" for name in found)


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "reference/api.md": api_page,
}


def main(folder: Path) -> None:
    """Write the pages into a folder."""
    for name, page in PAGES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
