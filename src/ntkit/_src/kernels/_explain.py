"""A table of how a program is computed."""

from __future__ import annotations

from dataclasses import dataclass

from ntkit._src.program import Keep, Keeps, Program, entries

_HEAD = (
    "operation", "path", "positions", "between x and x'", "of x itself", "entries per pair", "bytes per pair", "engine",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One operation."""

    operation: str  # operation, path: what it is and which part of the module it comes from
    path: str
    positions: tuple[int, ...]  # lengths of its position axes
    # cross, own: what is kept, axis by axis, of the covariance between two inputs and of each alone
    cross: Keeps | None
    own: Keeps | None
    entries_per_pair: int  # entries_per_pair, bytes_per_pair: the size of K alone for one pair of inputs, in float64
    bytes_per_pair: int
    engine: str


@dataclass(frozen=True)
class Explanation:
    """How the kernels of inputs of one shape are computed; printed as a table.

    Attributes
    ----------
    rows
        The operations.
    reason
        Why the reference engine runs them; None where the native engine does.
    single_precision
        Whether float32 inputs are computed in float32; in float64 otherwise, because float32 would lose their precision.
    ranges
        The operations that the native engine covers for a limited range of inputs, each with its range. For inputs beyond one of
        them ``engine="auto"`` takes the reference engine, and ``engine="native"`` raises.
    """

    rows: tuple[Row, ...]
    reason: str | None = None
    single_precision: bool = False
    ranges: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, program: Program, reason: str | None, single_precision: bool = False, ranges: tuple[str, ...] = ()
    ) -> Explanation:
        """Explain a program that the native engine runs, or the reference engine for a ``reason``."""
        engine = "native" if reason is None else "reference"
        rows = []
        for node, cross, own in zip(program.nodes, program.cross_keeps, program.self_keeps, strict=True):
            size = entries(node.positions, cross)
            rows.append(Row(node.op.label(), node.path, node.positions, cross, own, size, 8 * size, engine))
        return cls(tuple(rows), reason, single_precision, ranges)

    def __str__(self) -> str:
        table = [list(_HEAD)]
        for row in self.rows:
            positions = "x".join(map(str, row.positions)) or "-"
            sizes = [f"{row.entries_per_pair:,}", f"{row.bytes_per_pair:,}"]
            table.append([row.operation, row.path, positions, _words(row.cross), _words(row.own), *sizes, row.engine])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if name.endswith("per pair") else cell.ljust(width)
                for name, cell, width in zip(_HEAD, line, widths, strict=True)
            ).rstrip()
            for line in table
        ]
        if self.reason is not None:
            lines.append(f"The reference engine computes it: {self.reason}.")
        elif not self.single_precision:
            lines.append("float32 inputs are computed in float64.")
        if self.ranges:
            lines.append("The reference engine computes inputs beyond these ranges of the native one:")
            lines += [f"  {covered}" for covered in self.ranges]
        return "\n".join(lines)

    __repr__ = __str__


def _words(keeps: Keeps | None) -> str:
    if keeps is None:
        return "nothing"
    words = ["same" if keep is Keep.SAME else "all" for keep in keeps]
    return " x ".join(words) if len(set(words)) > 1 else (words or ["same"])[0]
