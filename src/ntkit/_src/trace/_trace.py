"""From a module to a program: the traced graph is read once with an example, operation by operation."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from ntkit._src.common import (
    RANDOM,
    RANDOM_INSTEAD,
    OwnParameters,
    check_module,
    copy_module,
    drawing_layers,
    ntk_gains,
    restored_random_state,
    strip_ntk,
)
from ntkit._src.layers import WrongInput
from ntkit._src.program import Gains, LogitSamples, Node, Owners, Program, Shared
from ntkit.errors import InputError, Problem, UnsupportedLayerError

from ._builder import EMPIRICAL, Builder, WrongShape
from ._example import (
    embeddings_of,
    examples,
    failing_operation,
    guesses,
    shapes_with_positions,
    shown_shape,
    takes,
    with_channels,
)
from ._gains import GainRule, alike
from ._graph import Untraceable, export_graph, symbolic_graph
from ._nodes import ROOT
from ._packed import Arguments, Packed, packed
from ._parameters import check_deterministic, lost_by_copies
from ._reader import Reader
from ._replay import Difference, FiniteNetwork, NotFinite, replay
from ._values import Field

_TOKENS = (4, 2, 16, 64)
# While torch.fx traces, it replaces methods of nn.Module for every thread, so only one may trace or run a traced module.
TRACING = threading.RLock()


class Tracer:
    """A snapshot of a module in evaluation mode, ready to be read for any input shape.

    ``check``: each program is replayed as a finite network and compared with the module. ``deterministic``: paths of submodules
    and parameters whose frozen parameters are fixed numbers. ``samples``: how softmax attention draws logits; None refuses it.
    """

    def __init__(
        self,
        module: nn.Module,
        gains: GainRule,
        check: bool = True,
        deterministic: Sequence[str] = (),
        samples: LogitSamples | None = None,
    ) -> None:
        check_module(module)
        lost = tuple(lost_by_copies(module))
        if lost:
            raise UnsupportedLayerError(lost)
        self.samples = samples
        self.deterministic = check_deterministic(module, deterministic)
        self.gains = gains.for_module(ntk_gains(module))
        self.check = check
        # Read the gains of the NTK parametrisation, then trace the module with plain weights.
        self.module = strip_ntk(copy_module(module)).eval()
        self._training = {path for path, layer in module.named_modules() if layer.training}
        self._random: list[Problem] | None = None
        self._programs: dict[_Key, Program] = {}
        # What reading needs, by input shape, once a graph has passed the replay: the same whatever the gains.
        self._proven: dict[tuple[int, ...], tuple[fx.GraphModule, Tensor, Any]] = {}
        # What was read with some gains, one reading for each choice of which are zero.
        self._readings: dict[_Key, list[_Reading]] = {}
        self._guard: AbstractContextManager[Any] = OwnParameters(module)
        with TRACING, restored_random_state():
            self._probe()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_guard": nullcontext(), "_proven": {}, "_readings": {}}  # the original is elsewhere

    def with_gains(self, gains: GainRule) -> Tracer:
        """Return the tracer of the same snapshot with other gains; graphs are shared, so none is traced or replayed twice."""
        other = copy.copy(self)  # skips the constructor, which would trace
        other._guard, other._proven, other._readings = self._guard, self._proven, self._readings
        other.gains, other._programs = gains.for_module(self.gains.parametrized), {}
        return other

    def with_arguments(self, arguments: Arguments, rows: Tensor) -> Tracer:
        """Return the tracer of the same module for packed rows of several arguments, of which some are given."""
        other = copy.copy(self)  # skips the constructor, which would guess shapes
        other.module = packed(self.module, arguments, rows)
        other._programs, other._proven, other._readings, other._random = {}, {}, {}, None
        return other

    def owners(self, input_shape: Sequence[int]) -> Owners:
        """Return the paths of the parameters that each node of a program applies."""
        with TRACING, restored_random_state(), torch.enable_grad():
            shape = tuple(int(size) for size in input_shape)
            program, network = self._read(shape)
            self._programs.setdefault((shape, False), program)
            return network.builder.owners(network.fields[None])

    def program(self, input_shape: Sequence[int], positions: bool = False) -> Program:
        """Return the program for inputs of one shape, without the batch; its output is averaged over positions unless kept.

        Raises an UnsupportedLayerError with every place that has no closed-form limit.
        """
        key = tuple(int(size) for size in input_shape), positions
        with TRACING, torch.enable_grad():
            readings = self._readings.setdefault(key, [])
            derived = (reading.with_gains(self.gains) for reading in readings)
            program = self.known(*key) or next((found for found in derived if found is not None), None)
            if program is None:
                with restored_random_state():
                    program, network = self._read(*key)
                readings.append(_Reading.of(program, network.builder))
            self._programs[key] = program
        return program

    def gains_of(self, program: Program, rule: GainRule) -> dict[int, Gains] | None:
        """Return the gains of the nodes of a program by another rule; None if they do not follow from it alone."""
        readings = (reading for readings in self._readings.values() for reading in readings)
        reading = next((reading for reading in readings if reading.program.structure is program.structure), None)
        return None if reading is None else reading.gains(rule)

    def known(self, input_shape: tuple[int, ...], positions: bool = False) -> Program | None:
        """Return the program for inputs of one shape if it has been read."""
        return self._programs.get((input_shape, positions))

    def finite_network(self, input_shape: Sequence[int]) -> tuple[Program, FiniteNetwork]:
        """Read the program again, with the finite network that it describes: the oracle of its covariances."""
        with TRACING, restored_random_state(), torch.enable_grad():
            return self._read(tuple(int(size) for size in input_shape))

    def input_shapes(self, positions: Sequence[int]) -> list[tuple[int, ...]]:
        """Guess shapes of inputs with given lengths of position axes: the channels are those of the first layer."""
        return shapes_with_positions(self.module, positions)

    def _probe(self) -> None:
        """Look for problems right away, with the first guessed input shape that the module accepts."""
        for shape in guesses(self.module):
            try:
                self.program(shape)
            except WrongShape:
                continue
            except NotFinite:
                if not self._makes_empty(shape):
                    raise
                continue  # a mean over nothing: the guess leaves no columns for a graph's adjacency, say
            except UnsupportedLayerError:
                # The mean over the tokens of (n, tokens, channels) is a mean over the channels of (n, channels).
                tokens = [(count, *shape) for count in _TOKENS] if len(shape) == 1 else []
                # What has rules and is refused by the replay is so for every shape.
                if self._readable(shape) or not any(self._readable(guess) for guess in tokens):
                    raise
            return

    def _makes_empty(self, shape: tuple[int, ...]) -> bool:
        """Return whether the module computes tensors without entries for inputs of a shape."""
        module, example, _ = self._run(shape)
        made = _Empty()
        with torch.no_grad(), made:
            module(example)
        return made.found

    def _readable(self, shape: tuple[int, ...]) -> bool:
        """Return whether torch.fx traces the module for inputs of a shape, and every operation has a rule."""
        try:
            module, example, output = self._run(shape)
            reader = self._reader(symbolic_graph(module, example), example, output)
            reader.refuse()
            self._finish(reader, positions=False)
        except (WrongShape, Untraceable, UnsupportedLayerError):
            return False
        return True

    @property
    def was_read(self) -> bool:
        """Whether the module was read for some input shape, so that places without a limit would be known."""
        return bool(self._programs)

    @property
    def embeddings(self) -> list[nn.Embedding | nn.EmbeddingBag]:
        """The layers that look up integers."""
        return embeddings_of(self.module)

    def _reader(self, graph: fx.GraphModule, example: Tensor, output: Any) -> Reader:
        """Return the reader of a graph after it has read it; ``output`` is the module's for the example."""
        reader = Reader(graph, example, self.gains, self.deterministic, self.samples, frozenset(self._training))
        reader.read(output)
        return reader

    def _read(self, shape: tuple[int, ...], positions: bool = False) -> tuple[Program, FiniteNetwork]:
        if shape in self._proven:
            reader = self._reader(*self._proven[shape])
            reader.refuse()
            program = self._finish(reader, positions)
            return program, FiniteNetwork(reader.builder, program.prefixes, reader.fields)
        module, example, output = self._run(shape)
        if self._random is None:
            found = drawing_layers(module, self._training, example)
            self._random = [Problem(path or ROOT, kind, RANDOM, RANDOM_INSTEAD) for path, kind in found.items()]
        failures: list[str] = []
        first: UnsupportedLayerError | None = None
        for seed, trace in enumerate((symbolic_graph, export_graph), 2):
            try:
                graph = trace(module, example)
            except Untraceable as error:
                failures.append(str(error).splitlines()[0])
                if error.final:
                    break
                continue
            reader = self._reader(graph, example, output)
            reader.problems[:0] = self._random
            if first is not None and reader.problems:
                raise first
            reader.refuse()
            try:
                program = self._finish(reader, positions)
            except Untraceable as error:
                failures.append(str(error))
                continue
            network = FiniteNetwork(reader.builder, program.prefixes, reader.fields)
            try:
                if self.check:
                    replay(module, graph, network, example, seed)
            except Difference as difference:
                first = first or UnsupportedLayerError((reader.problem(module, difference),))
                continue
            self._proven[shape] = graph, example, output
            return program, network
        if first is not None:
            raise first
        problem = Problem(
            ROOT,
            type(self.module).__name__,
            "its forward could not be read as a graph (control flow that depends on the data, or operations on values "
            f"outside torch); symbolic tracing said {failures[0]!r}, export said {failures[-1]!r}",
            f"write the forward without such control flow; or {EMPIRICAL}",
        )
        raise UnsupportedLayerError((*self._random, problem))

    def _run(self, shape: tuple[int, ...]) -> tuple[nn.Module, Tensor, Any]:
        """Run the module on an example, in float64 or else in float32; return a copy, the example and the output."""
        for batch, dtype in examples(self.module, shape):
            try:
                module = copy_module(self.module).to(dtype)
                with torch.no_grad(), self._guard:
                    output = module(batch.clone())
                if isinstance(output, Tensor) and output.numel() == 0:
                    raise WrongShape(
                        f"the module returns an empty output, of shape {tuple(output.shape)}, for inputs of shape "
                        f"{tuple(batch.shape)}. Pass inputs of the shape that it is written for."
                    )
                return module, batch, output
            except WrongInput as error:
                path = next((name for name, layer in module.named_modules() if layer is error.layer), "")
                raise WrongShape(f"layer {path!r}: {error}") from error
            except InputError:
                raise
            except Exception as error:  # the module's own code may raise anything
                raised = error
        parameter = next((p for p in self.module.parameters() if p.is_floating_point()), torch.empty(0))
        for full in with_channels(self.module, shape):
            if takes(self.module, torch.zeros(2, *full).to(parameter)):
                raise WrongShape(
                    f"inputs must have a batch dimension in front: the module takes {shown_shape(full)}, and "
                    f"{shown_shape(shape)} lacks the channels. For a single input write x[None]."
                ) from raised
        raise WrongShape(
            f"the module cannot take inputs of shape {self._shown(shape)}: "
            f"{failing_operation(self.module, next(examples(self.module, shape))[0].to(parameter), ROOT)}{raised}"
        ) from raised

    def _shown(self, shape: Sequence[int]) -> str:
        if not isinstance(self.module, Packed):
            return shown_shape(shape)
        given = self.module.arguments
        parts = zip(given.names, map(shown_shape, given.shapes), strict=True)
        return ", ".join(part if name is None else f"{name}={part}" for name, part in parts)

    def _finish(self, reader: Reader, positions: bool) -> Program:
        layers = reader.builder.layers
        unknown = sorted(set(self.gains.overrides) - set(layers))
        if unknown:
            raise InputError(
                f"overrides names the layers {unknown}, which the module does not use. Its layers with weights are "
                f"{sorted(layers)}."
            )
        unbiased = sorted(name for name, own in self.gains.overrides.items() if "b_std" in own and not layers[name])
        if unbiased:
            raise InputError(
                f"overrides sets b_std of the layers {unbiased}, which have no bias. Leave b_std out, or build them with a bias."
            )
        assert isinstance(reader.value, Field)
        return reader.builder.program(reader.value, positions)


_Key = tuple[tuple[int, ...], bool]  # an input shape, and whether positions are kept


@dataclass(frozen=True)
class _Reading:
    """A program and where its gains come from."""

    program: Program
    questions: (
        dict[int, tuple[Any, ...]] | None
    )  # what the gain rule was asked, by node; None: some gains are computed from others

    @staticmethod
    def of(program: Program, builder: Builder) -> _Reading:
        def question(node: Node) -> tuple[Any, ...] | None:
            return next((asked for gains, asked in builder.asked if gains is getattr(node.op, "gains", None)), None)

        nodes = (*builder.nodes, *program.nodes)
        layers = [node for node in nodes if any(isinstance(value, Gains) for value in vars(node.op).values())]
        found = {index: own for index, node in enumerate(program.nodes) if (own := question(node)) is not None}
        inside = any(isinstance(node.op, Shared) for node in program.nodes)  # whose layers are no nodes of the program
        return _Reading(program, None if inside or None in map(question, layers) else found)

    def gains(self, rule: GainRule) -> dict[int, Gains] | None:
        """Return the gains of the nodes by a rule."""
        return None if self.questions is None else {index: rule(*asked) for index, asked in self.questions.items()}

    def with_gains(self, rule: GainRule) -> Program | None:
        """Return the program for other gains; None if it has to be read again, as other gains are zero or tensors than here."""
        gains = self.gains(rule)
        if gains is None:
            return None
        ops: dict[int, Any] = {index: self.program.nodes[index].op for index in gains}
        if not all(alike(op.gains, gains[index]) for index, op in ops.items()):
            return None
        return self.program.with_ops({index: replace(op, gains=gains[index]) for index, op in ops.items()})


class _Empty(TorchFunctionMode):
    """Notices tensors without entries."""

    found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.found = self.found or (isinstance(result, Tensor) and result.numel() == 0)
        return result
