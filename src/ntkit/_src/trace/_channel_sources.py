"""Which sources of randomness a part of the channels carries: two parts without a common channel are independent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ._values import Info

_FIRST = -1_000_000  # labels of ranges count down from here, distinct from those of nodes and of the data


@dataclass(frozen=True)
class _Range:
    """A range of the channels of a source: the uncut source, its width, and the range."""

    root: int
    width: int
    start: int
    stop: int


@dataclass
class ChannelSources:
    """Splits sources where channels are split, in every node that carries them.

    Channel i of a node carries channel i of each of its sources: what mixes channels (a layer with weights) is a new source.
    """

    _ranges: dict[int, _Range] = field(default_factory=dict)
    _cuts: int = 0

    def part(self, info: list[Info], node: int, start: int, stop: int, width: int) -> frozenset[int]:
        """Return the sources of a range of a node's channels; ``info`` is updated to name the split sources everywhere."""
        kept: set[int] = set()
        for root, labels in self._by_root(info[node].sources, width).items():
            ranges = [self._ranges[label] for label in labels if label in self._ranges]
            if root < 0 and not ranges:
                kept |= labels  # the data: all parts depend on each other
                continue
            offset = min(piece.start for piece in ranges)
            covered = max(piece.stop for piece in ranges) - offset
            if sum(piece.stop - piece.start for piece in ranges) != width or covered != width:
                kept |= labels  # overlapping parts of one source: it is unknown which channel is which
                continue
            for boundary in (offset + start, offset + stop):
                self._cut(info, root, boundary)
            kept |= {
                label
                for label, piece in self._ranges.items()
                if piece.root == root and offset + start <= piece.start and piece.stop <= offset + stop
            }
        return frozenset(kept)

    def _by_root(self, sources: frozenset[int], width: int) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for label in sources:
            if label not in self._ranges and label >= 0:
                self._ranges[label] = _Range(label, width, 0, width)
            known = self._ranges.get(label)
            found.setdefault(label if known is None else known.root, set()).add(label)
        return found

    def _cut(self, info: list[Info], root: int, boundary: int) -> None:
        """Replace the label whose range contains a boundary by two labels."""
        for label, piece in list(self._ranges.items()):
            if piece.root != root or not piece.start < boundary < piece.stop:
                continue
            del self._ranges[label]
            halves = _FIRST - 2 * self._cuts, _FIRST - 2 * self._cuts - 1
            self._cuts += 1
            self._ranges[halves[0]] = replace(piece, stop=boundary)
            self._ranges[halves[1]] = replace(piece, start=boundary)
            for index, known in enumerate(info):
                if label in known.sources:
                    info[index] = replace(known, sources=(known.sources - {label}) | set(halves))
            return
