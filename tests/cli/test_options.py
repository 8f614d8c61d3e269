"""What options of several commands accept."""

import pytest
from click.testing import CliRunner

from mbd.cli import group


@pytest.mark.parametrize("reason", ["a\x1b[2Jb", "a\u202eb", "a\nb"], ids=["escape", "direction", "line break"])
@pytest.mark.parametrize(
    "command",
    [
        ["certificate", "revoke", "0" * 64],
        ["keys", "revoke", "signer"],
        ["models", "reinstate", "sentiment", "--modality", "audio"],
        ["request", "submit", "--modality", "audio"],
        ["shred", "destroy", "--modality", "audio"],
    ],
    ids=lambda command: command[0],
)
def test_a_reason_is_one_line_of_printable_text(command: list[str], reason: str) -> None:
    done = CliRunner().invoke(group, [*command, "--reason", reason])
    assert (done.exit_code, "printable" in done.output) == (2, True)
