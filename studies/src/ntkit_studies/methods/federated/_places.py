"""Where workers run: in this process, or on a Dask cluster. Calls a method of every worker and gathers the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ntkit.errors import InputError, InputTypeError, MissingDependencyError, NtkitError, WorkerError

from ._worker import Worker

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Places"]


class Places:
    """Calls methods of all workers.

    Parameters
    ----------
    workers
        At least one.
    client
        A Dask client; the workers' data are sent there once. None: everything runs in this process.
    """

    def __init__(self, workers: Sequence[Worker], client: Client | None) -> None:
        if isinstance(workers, Worker) or not isinstance(workers, Sequence):
            raise InputTypeError(f"workers must be a sequence of Worker(x, y). Got {type(workers).__name__}.")
        if not workers:
            raise InputError("workers must have at least one Worker(x, y). Got none.")
        for worker in workers:
            if not isinstance(worker, Worker):
                raise InputTypeError(
                    f"workers must be a sequence of Worker(x, y). Got a {type(worker).__name__} in it."
                )
        self.workers = list(workers)
        self.sizes = [len(worker) for worker in workers]
        self.client = client
        self._held: list[Any] = list(workers)
        if client is not None:
            try:
                from distributed import Client
            except ImportError as error:
                raise MissingDependencyError(
                    "client= needs the package distributed: write pip install 'ntkit[scale]', or leave client out."
                ) from error
            if not isinstance(client, Client):
                raise InputTypeError(f"client must be a distributed.Client or None. Got {client!r}.")
            self._held = [client.scatter(worker, hash=False) for worker in workers]

    def each(self, method: str, *shared: Any, own: Sequence[Any] | None = None, what: str = "") -> list[Any]:
        """Call a method of every worker, and return the answers in the order of the workers.

        Parameters
        ----------
        method
            Name of a method of :class:`Worker`.
        shared
            Arguments that all workers share.
        own
            One more argument per worker.
        what
            What is being done, for the message when a worker is lost.
        """
        arguments = [(*shared, *((own[index],) if own is not None else ())) for index in range(len(self._held))]
        if self.client is None:
            return [self._local(index, method, given, what) for index, given in enumerate(arguments)]
        futures = [
            self.client.submit(_call, held, method, *given, pure=False)
            for held, given in zip(self._held, arguments, strict=True)
        ]
        return [self._gathered(index, future, what) for index, future in enumerate(futures)]

    def pair(self, first: int, second: int, method: str, *arguments: Any, what: str = "") -> Any:
        """Call a method of one worker with another worker (None if both are the same) as second argument."""
        other = None if first == second else self._held[second]
        given = (arguments[0], other, *arguments[1:])
        if self.client is None:
            return self._local(first, method, given, what)
        return self._gathered(first, self.client.submit(_call, self._held[first], method, *given, pure=False), what)

    def _local(self, index: int, method: str, given: tuple[Any, ...], what: str) -> Any:
        try:
            return getattr(self.workers[index], method)(*given)
        except NtkitError:
            raise
        except OSError as error:
            raise _lost(index, what, error) from error

    def _gathered(self, index: int, future: Any, what: str) -> Any:
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        try:
            return future.result()
        except NtkitError:
            raise
        except (FutureCancelledError, KilledWorker, OSError) as error:
            raise _lost(index, what, error) from error


def _call(worker: Worker, method: str, *arguments: Any) -> Any:
    return getattr(worker, method)(*arguments)


def _lost(index: int, what: str, error: Exception) -> WorkerError:
    return WorkerError(
        f"worker {index} was lost {what or 'in the middle of a round'} ({error}). The weights are those of the round before; "
        "start again without it, or when it is back."
    )
