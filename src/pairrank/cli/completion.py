"""``pairrank completion``: a script that lets the shell complete commands, options and their values."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_EPILOG = """\
install it:
  bash  add to ~/.bashrc:                   eval "$(pairrank completion bash)"
  zsh   add to ~/.zshrc, after compinit:    eval "$(pairrank completion zsh)"
  fish  once:  pairrank completion fish > ~/.config/fish/completions/pairrank.fish
"""


@dataclass(frozen=True)
class Flag:
    """An option: its spellings, its help, whether a value follows, the values where they are known, else any file."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    values: tuple[str, ...]
    files: bool


@dataclass(frozen=True)
class Level:
    """What may follow the words of ``path``: commands with their help, options, values, and whether files may."""

    path: tuple[str, ...]
    commands: dict[str, str]
    flags: tuple[Flag, ...]
    values: tuple[str, ...]
    files: bool

    @property
    def words(self) -> list[str]:
        """All words that may follow."""
        return [*self.commands, *self.values, *(name for flag in self.flags for name in flag.names)]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completion",
        help="a script for bash, zsh or fish that completes this command line",
        description="Print a script that lets the shell complete commands, options and their values.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=tuple(_SHELLS), help="for which shell")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from pairrank import cli

    print(_SHELLS[args.shell](list(levels(cli.parser()))), end="")
    return 0


def levels(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[Level]:
    """What the parser takes at each level of commands, the top first."""
    below: dict[str, argparse.ArgumentParser] = {}
    commands: dict[str, str] = {}
    flags: list[Flag] = []
    values: list[str] = []
    files = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below |= action.choices
            commands |= {choice.dest: _plain(choice.help) for choice in action._choices_actions}
        elif action.option_strings:
            known, takes_value = _values(action, path), action.nargs != 0
            open_ended = takes_value and not known and action.type is None
            flags.append(Flag(tuple(action.option_strings), _plain(action.help), takes_value, known, open_ended))
        else:
            values += _values(action, path)
            files |= action.choices is None
    yield Level(path, commands, tuple(flags), tuple(values), files)
    for name, inner in below.items():
        yield from levels(inner, (*path, name))


def _values(action: argparse.Action, path: tuple[str, ...]) -> tuple[str, ...]:
    """The values that are known beforehand; for rankers and users, their names."""
    from pairrank import clicks, rankers

    if action.choices is not None:
        return tuple(map(str, action.choices))
    if "--ranker" in action.option_strings and path != ("replay",):  # a store's rankers have names of their own
        return tuple(rankers.names())
    return tuple(clicks.names()) if "--clicks" in action.option_strings else ()


def _plain(text: str | None) -> str:
    """Help as one line without what shells might take amiss."""
    return re.sub(r"[\s`'\"\\:\[\]$]+", " ", text or "").strip()


# bash and zsh: find the level from the words before the cursor, then ask two tables.

_BASH = """\
# Completion of pairrank for bash; made by `pairrank completion bash`.
_pairrank() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} at='' words='' files='' i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${{COMP_WORDS[i]}}" in
{steps}
        esac
    done
    case "$at $previous" in
{values}
    esac
    case "$at" in
{levels}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ -n $files && $current != -* ]]; then COMPREPLY+=($(compgen -f -- "$current")); fi
}}
complete -o filenames -F _pairrank pairrank
"""


def bash(tree: list[Level]) -> str:
    """The script for bash."""
    steps, values, rows = [], [], []
    for level in tree:
        at = " ".join(level.path)
        for name in level.commands:
            steps.append(f"            {_case(at, name)}) at={shlex.quote(f'{at} {name}'.strip())} ;;")
        for flag in level.flags:
            if flag.takes_value:
                pattern = "|".join(_case(at, name) for name in flag.names)
                known = "-f" if flag.files else f"-W {shlex.quote(' '.join(flag.values))}"
                values.append(f'        {pattern}) COMPREPLY=($(compgen {known} -- "$current")); return ;;')
        files = "files=1 " if level.files else ""
        rows.append(f"        {shlex.quote(at)}) {files}words={shlex.quote(' '.join(level.words))} ;;")
    return _BASH.format(steps="\n".join(steps), values="\n".join(values), levels="\n".join(rows))


def zsh(tree: list[Level]) -> str:
    """The script for zsh, by its support for bash's functions."""
    return f"autoload -Uz bashcompinit && bashcompinit\n{bash(tree)}"


def _case(at: str, word: str) -> str:
    return shlex.quote(f"{at} {word}")


_FISH = """\
# Completion of pairrank for fish; made by `pairrank completion fish`.
function __pairrank_at
    set -l at
    for word in (commandline -opc)[2..]
        switch "$at $word"
{steps}
        end
    end
    test "$at" = "$argv[1]"
end
complete -c pairrank -f
{rows}
"""


def fish(tree: list[Level]) -> str:
    """The script for fish, which also shows the help."""
    steps, rows = [], []
    for level in tree:
        at = " ".join(level.path)
        begin = f"complete -c pairrank -n '__pairrank_at \"{at}\"'"
        for name, told in level.commands.items():
            steps.append(f"            case {_case(at, name)}")
            steps.append(f"                set at {shlex.quote(f'{at} {name}'.strip())}")
            rows.append(f"{begin} -a {name} -d {shlex.quote(told)}")
        if level.values:
            rows.append(f"{begin} -a {shlex.quote(' '.join(level.values))}")
        if level.files:
            rows.append(f"{begin} -F")
        rows += [f"{begin} {_fish_flag(flag)}" for flag in level.flags]
    return _FISH.format(steps="\n".join(steps), rows="\n".join(rows))


def _fish_flag(flag: Flag) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
    value = " -r -F" if flag.files else " -x" if flag.takes_value else ""
    if flag.values:
        value += f" -a {shlex.quote(' '.join(flag.values))}"
    return f"{names}{value} -d {shlex.quote(flag.help)}"


_SHELLS: dict[str, Callable[[list[Level]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
