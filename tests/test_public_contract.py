"""Names and defaults that users rely on change on purpose only."""

import inspect

from tests.public_contract import FILE, signatures

import ntkit


def test_signatures_are_those_written_down():
    found, expected = signatures().splitlines(), FILE.read_text(encoding="utf-8").splitlines()
    changed = [f"- {line}" for line in expected if line not in found] + [
        f"+ {line}" for line in found if line not in expected
    ]
    assert found == expected, "\n".join(
        ["signatures changed; if meant, say so in CHANGELOG.md and run python tests/public_contract.py", *changed]
    )


def test_gains_default_to_none():
    """None is the module's own gains, or else sqrt(2) and 0: a number would contradict a module that has its own."""
    places = {"ntkit": ntkit} | {
        name: getattr(ntkit, name) for name in ("diagnostics", "features", "results", "applications")
    }
    defaults = {}
    for place, module in places.items():
        for name in module.__all__:
            value = getattr(module, name)
            function = value.__init__ if inspect.isclass(value) else value
            for gain in ("w_std", "b_std"):
                parameter = inspect.signature(function).parameters.get(gain) if inspect.isfunction(function) else None
                if parameter is not None and parameter.default is not inspect.Parameter.empty:
                    defaults[f"{place}.{name}", gain] = parameter.default
    assert len(defaults) >= 20
    assert {place: value for place, value in defaults.items() if value is not None} == {}
