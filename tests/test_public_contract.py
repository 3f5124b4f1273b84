"""Names and defaults that users rely on change on purpose only."""

from tests.public_contract import FILE, signatures


def test_signatures_are_those_written_down():
    found, expected = signatures().splitlines(), FILE.read_text(encoding="utf-8").splitlines()
    changed = [f"- {line}" for line in expected if line not in found] + [
        f"+ {line}" for line in found if line not in expected
    ]
    assert found == expected, "\n".join(
        ["signatures changed; if meant, say so in CHANGELOG.md and run python tests/public_contract.py", *changed]
    )
