"""The tree of commands: every command explains itself, mistakes are one line."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from ottla import cli
from ottla.cli.app import COMMANDS, run_command
from ottla.cli.failures import Exit

GROUPS = {
    "topic": ("create", "list", "describe", "alter", "delete"),
    "group": ("list", "describe", "reset", "delete", "offsets delete"),
    "txn": ("list", "describe", "hanging", "abort"),
    "cluster": (
        "info",
        "health",
        "quorum",
        "reassign",
        "elect",
        "decommission",
        "add-voter",
        "remove-voter",
        "new-id",
    ),
    "config": ("get", "set", "unset"),
    "log": ("dump",),
}
LEAVES: list[tuple[str, ...]] = [(name,) for name in COMMANDS if name not in GROUPS]
LEAVES += [(group, *name.split()) for group, names in GROUPS.items() for name in names]


@pytest.mark.parametrize("command", LEAVES, ids=" ".join)
def test_every_command_has_help_with_an_example(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*command, "--help"]) == Exit.OK
    shown = capsys.readouterr().out
    assert len(re.findall(rf"ottla {' '.join(command)}", shown)) >= 2, "usage and an example"


def test_the_root_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--help"]) == Exit.OK
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topci", "list"],
        ["topic", "creat", "x"],
        ["topic", "create"],
        ["topic", "create", "x", "--partitions", "0"],
        ["topic", "create", "x", "--partitions", "many"],
        ["topic", "create", "x", "--config", "nonsense"],
        ["group", "reset", "g", "--to-earliest"],
        ["group", "reset", "g", "--topic", "t"],
        ["group", "reset", "g", "--topic", "t", "--to-earliest", "--to-latest"],
        ["group", "reset", "g", "--topic", "t", "--all-topics", "--to-latest"],
        ["group", "reset", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"],
        ["group", "reset", "g", "--topic", "t:x", "--to-latest"],
        ["group", "reset", "g", "--topic", "t", "--by-duration", "soon"],
        ["group", "offsets", "delete", "g"],
        ["group", "list", "--state", "stabel"],
        ["group", "list", "--type", "clasic"],
        ["txn", "list", "--state", "going"],
        ["cluster", "reassign", "t", "--all-topics"],
        ["cluster", "reassign", "t", "--to", "1,x"],
        ["cluster", "reassign", "t", "--to", "1,1"],
        ["cluster", "reassign", "t", "--replicas", "1", "--replication-factor", "2"],
        ["cluster", "reassign", "t", "--from-file", "plan.json"],
        ["cluster", "reassign", "t", "--throttle", "fast"],
        ["cluster", "reassign", "t", "--throttle", "0"],
        ["cluster", "reassign", "--list", "--cancel"],
        ["cluster", "elect"],
        ["cluster", "elect", "t", "--all-topics"],
        ["cluster", "decommission", "x"],
        ["cluster", "decommission", "1", "--stop-within", "soon"],
        ["txn", "abort"],
        ["txn", "abort", "x", "--topic", "t"],
        ["consume", "t", "--group", "g", "--partition", "0"],
        ["topic", "alter", "x"],
        ["consume", "x", "--from", "yesterday"],
        ["consume", "x", "--format", "%q"],
        ["consume", "x", "--format", "%s", "--output", "json"],
        ["produce", "x", "--json", "--key-separator", ":"],
        ["produce", "x", "--key-separator", ""],
        ["produce", "x", "--acks", "1", "--idempotent"],
        ["produce", "x", "--file", "no/such/file"],
        ["config", "get"],
        ["config", "set", "a=b", "--topic", "x", "--broker", "1"],
        ["topic", "list", "--bootstrap", "host:port"],
        ["serve", "--port", "99999"],
        ["serve", "--brokers", "3"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = run_command(arguments)
    except SystemExit as leaving:
        code = int(str(leaving.code))
    written = capsys.readouterr()
    assert code == Exit.USAGE
    assert written.out == ""
    assert written.err.startswith("ottla: ")
    assert written.err.count("\n") == 1


def test_nothing_listens_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        run_command(["topic", "list", "--bootstrap", "127.0.0.1:1"])
    assert leaving.value.code == Exit.CANNOT_CONNECT
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_a_missing_file_is_exit_code_4(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        run_command(["log", "dump", "no/such/segment.log"])
    assert leaving.value.code == Exit.NOT_FOUND


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["version"]) == Exit.OK
    assert run_command(["--version"]) == Exit.OK
    assert capsys.readouterr().out.count("ottla ") == 2


def test_only_the_module_of_the_command_is_loaded() -> None:
    program = (
        "import sys; from ottla.cli.app import run_command; run_command(['version']);"
        "print([name for name in ('ottla.cli.consume', 'ottla.cli.doctor', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_ctrl_c_while_a_command_is_loaded_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == Exit.INTERRUPTED
    assert capsys.readouterr().err == "ottla: interrupted\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_shell_closed_is_no_failure(closed: str) -> None:
    done = subprocess.run(f"{sys.executable} -m ottla version --all {closed}", shell=True, check=False)
    assert done.returncode == Exit.OK
