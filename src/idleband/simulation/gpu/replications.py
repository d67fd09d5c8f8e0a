"""Run many replications of one policy, or of the references, on a GPU: in batches that fit, and in segments of slots.

Results are close to those of the CPU, not equal bit by bit: products and sums are fused, logarithms and theta differ in
their last bits. A path differs visibly only from the slot on in which two indices are as close as that.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.core.errors import NumbaError

from idleband.arrays import Floats, Ints
from idleband.binding import policy_errors
from idleband.errors import InputError
from idleband.kernels.compile import INTERPRETED, reason
from idleband.kernels.rng import streams
from idleband.policies import lucb
from idleband.policies.protocol import PARAMETERS
from idleband.policies.registry import ConfiguredPolicy
from idleband.scenario.scenario import Scenario
from idleband.simulation import loop
from idleband.simulation.gpu.device import cuda_module, free_memory
from idleband.simulation.gpu.device_code import DeviceCode
from idleband.simulation.gpu.kernel import ALL_REGISTERS, RAISED, REGISTERS, THREADS, build_kernel
from idleband.simulation.gpu.layout import LANES, Array, Kind, Layout
from idleband.simulation.gpu.set_up import draws_on_gpu, set_up_kernel, signs_of
from idleband.simulation.path import draw_ahead, new_path, new_references, path_parameters, prepare_drawing
from idleband.simulation.run import check_model, invalid_picks, model_bindings, named_model, policy_memory

SEGMENT = 0.25  # seconds, about, of a launch, so that progress and Ctrl-C are seen
FIRST_SEGMENT = 100  # slots of the first launch
MAX_BATCH = 2**18  # replications
MEMORY_SHARE = 0.8  # of the free memory of the GPU, for the memory of replications
HOST_BYTES = 2**30  # of replications that are set up on the CPU together

PARTS = ("set_up", "loop", "results")


class Batch(NamedTuple):
    """Results of replications that ran together."""

    curves: Floats  # (R, curves, C)
    plays: Ints  # (R, K), empty for the references


class Memory(NamedTuple):
    """Arrays on the GPU that replications have of their own."""

    replications: int
    local: dict[str, Any]  # by type: local arrays between launches, (elements, R)
    tiled: dict[str, Any]  # by name


class Simulation:
    """One policy, or the references, on a scenario: its memory on a GPU and its kernels.

    Replications are set up on the GPU where they differ in random streams and theta only. Otherwise the memory of each
    is made on the CPU and copied.
    """

    def __init__(
        self, scenario: Scenario, configured: ConfiguredPolicy | None, horizon: int, seed: int, *, narrow: bool = False
    ) -> None:
        self.scenario, self.configured, self.horizon, self.seed = scenario, configured, horizon, seed
        self.seconds = dict.fromkeys(PARTS, 0.0)  # spent on each part so far
        first, second = self._memory(0), self._memory(1)
        self.path = first[1] if configured is not None else first[0]
        self.results = first[-1]  # Tally or References
        given = scenario.perturbation
        one_theta = given.drawn and not (given.per_channel or given.drift)
        self.layout = Layout(
            narrow,
            # Code of the package counts slots in them, at most.
            narrow_integers=not self._users_code and horizon < 2**31,
            repeated=[self.path.theta] if one_theta else [],
        )
        with self._named():
            parts = [
                self.layout.add(one, other, results=one is first[-1]) for one, other in zip(first, second, strict=True)
            ]
        names = {id(array): position for position, array in reversed(list(enumerate(_arrays(first))))}
        self._positions = {  # of the arrays that a replication has of its own, among all of its memory
            leaf.name: names[id(self.layout.source_of(leaf))] for leaf in self.layout.own(Kind.LOCAL, Kind.TILED)
        }
        self.set_up_on_gpu = self._set_up_on_gpu()
        self._set_up: Any = self._set_up_kernel()
        self._kernel = build_kernel(
            self.layout,
            ", ".join(parts),
            self._loop(),
            self._name(),
            registers=self._registers(),
            cached=model_bindings(given.model).cacheable and (configured is None or configured.policy.cacheable),
        )

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Report errors with the name of the policy."""
        try:
            yield
        except InputError as error:
            raise InputError(f"{self._subject()}: cannot run on a GPU: {error}") from None

    def _subject(self) -> str:
        return "the references" if self.configured is None else f"policy {self.configured.policy.name}"

    # --- memory and kernels ------------------------------------------------------------------------------------------

    def _memory(self, replication: int) -> tuple[Any, ...]:
        """Return the memory of a replication before the first slot, as on the CPU."""
        scenario, seed = self.scenario, self.seed
        if self.configured is not None:
            return policy_memory(scenario, self.configured, self.horizon, seed, replication)()
        theta, means = path_parameters(scenario, seed, replication)
        path = new_path(scenario, seed, replication, theta)
        return path, new_references(scenario, path, means, self.horizon)

    def _loop(self) -> Any:
        bindings = dict(model_bindings(self.scenario.perturbation.model).functions)
        if self.configured is None:
            return DeviceCode().function(loop.run_references, bindings)
        policy = self.configured.policy
        return DeviceCode().function(loop.run, {"select": policy.select, "update": policy.update, **bindings})

    def _registers(self) -> int:
        """Return the number of registers that a thread may use."""
        return ALL_REGISTERS if self.configured is not None and self.configured.policy.init is lucb.init else REGISTERS

    def _name(self) -> str:
        """Return what identifies the code of the loop; constants are in the source of the kernel."""
        policy = None if self.configured is None else self.configured.policy.key
        model = self.scenario.perturbation.model
        return repr((policy, model.name, model.source))

    def _set_up_on_gpu(self) -> bool:
        """Return whether replications differ in random streams and theta only, and theta can be drawn on the GPU."""
        scenario, configured = self.scenario, self.configured
        user = configured is not None and configured.policy.source is not None
        oracle = configured is not None and PARAMETERS in configured.policy.knows
        if user or oracle or scenario.recording is not None or scenario.contexts.kind != "uniform":
            return False
        theta = self.layout.find(self.path.theta)
        if scenario.perturbation.drawn and not (draws_on_gpu(scenario) and theta.kind is Kind.LOCAL):
            return False
        return all(leaf.type != "uint64" for leaf in self.layout.own(Kind.TILED))

    def _set_up_kernel(self) -> Any:
        """Mark the arrays whose values before the first slot are given; return the kernel that writes them, if any."""
        own = self.layout.own(Kind.LOCAL, Kind.TILED)
        if not self.set_up_on_gpu:
            for leaf in own:
                leaf.given = True
            return None
        of_replication = streams(self.seed, 0)
        places = []
        for leaf in own:
            if leaf.type == "uint64":
                (name,) = np.flatnonzero((of_replication == leaf.value).all(axis=1))
                places.append((int(name), leaf.first))
                leaf.given = True
        rows, theta_at = 0, 0
        if self.scenario.perturbation.drawn:
            theta = self.layout.find(self.path.theta)
            theta.given = True
            rows, theta_at = theta.stored_shape[0], theta.first
        return set_up_kernel(self.scenario, places, theta_at, rows)

    # --- running -----------------------------------------------------------------------------------------------------

    def prepare(self, replications: int) -> None:
        """Compile the kernels, or load them from the cache, and what draws so many thetas on the CPU."""
        if not self.set_up_on_gpu:
            prepare_drawing(self.scenario, replications)
        horizon, self.horizon = self.horizon, 0
        try:
            self._run_batch([0], lambda slots: None)
        except Exception as error:
            if isinstance(error, InputError) or not (self._users_code or isinstance(error, NumbaError)):
                raise
            raise InputError(f"{self._subject()}: does not compile for a GPU: {reason(error)}") from None
        finally:
            self.horizon = horizon

    def run(self, replications: Sequence[int], advance: Callable[[int], None]) -> Iterator[tuple[Sequence[int], Batch]]:
        """Run replications and yield them in batches; `advance` receives the slots after each launch."""
        size = self._batch_size()
        for at in range(0, len(replications), size):
            batch = replications[at : at + size]
            yield batch, self._run_batch(batch, advance)

    def _batch_size(self) -> int:
        """Return how many replications fit into the memory of the GPU."""
        each = self.layout.bytes_per_replication() + 16
        size = int(MEMORY_SHARE * free_memory() / each)
        if size < LANES:
            raise InputError(
                f"{self._subject()}: a replication needs {each / 2**20:.0f} MiB, too much for the memory of the GPU"
            )
        if not self.set_up_on_gpu:
            size = min(size, max(LANES, HOST_BYTES // each))
        return min(MAX_BATCH, size // LANES * LANES)

    def _run_batch(self, replications: Sequence[int], advance: Callable[[int], None]) -> Batch:
        cuda = cuda_module()
        began = time.perf_counter()
        count, layout = len(replications), self.layout
        blocks = -(-count // THREADS)
        memory = self._new_memory(count)
        found = np.empty((count, *self.results.curves.shape))
        curves = cuda.device_array(found.shape, np.float64)
        if self.set_up_on_gpu:
            self._set_up_batch(replications, memory, blocks)
        else:
            self._fill_from_host(replications, memory)
        arguments = [cuda.to_device(layout.buffer(Kind.SHARED, name)) for name in layout.types(Kind.SHARED)]
        arguments += [cuda.to_device(layout.buffer(Kind.LOCAL, name)) for name in layout.types(Kind.LOCAL)]
        arguments += list(memory.local.values())
        for leaf in layout.own(Kind.TILED):
            arguments += [memory.tiled[leaf.name], cuda.to_device(leaf.value)]
        arguments += [curves, cuda.to_device(self.results.t), cuda.to_device(np.array([*layout.numbers, 0.0]))]
        broken = cuda.to_device(np.zeros(count, np.int64))
        cuda.synchronize()
        began = self._count("set_up", began)
        at, slots = 0, FIRST_SEGMENT
        while True:
            launched, last = time.perf_counter(), min(self.horizon, at + slots)
            with self._errors():
                self._kernel[blocks, THREADS](*arguments, at, last, broken)
                if at == 0:
                    found.fill(0.0)  # the system provides this memory now, while the GPU works
                cuda.synchronize()
            if self._users_code or last == self.horizon:
                self._check(memory, broken)
            advance((last - at) * count)
            if last == self.horizon:
                break
            seconds = time.perf_counter() - launched
            slots = max(1, int((last - at) * min(16.0, SEGMENT / max(seconds, 1e-6))))
            at = last
        began = self._count("loop", began)
        results = self._results(memory, curves.copy_to_host(found))
        self._count("results", began)
        return results

    @property
    def _users_code(self) -> bool:
        """Whether the loop calls a user's code, which may fail."""
        policy = self.configured is not None and self.configured.policy.source is not None
        return policy or self.scenario.perturbation.model.source is not None

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Report what a user's code raises in the simulator in one line, as on the CPU."""
        with contextlib.ExitStack() as stack:
            if INTERPRETED:
                policy = None if self.configured is None else self.configured.policy
                if policy is not None:
                    stack.enter_context(policy_errors(policy))
                alone = policy is None or policy.source is None
                stack.enter_context(named_model(self.scenario.perturbation.model, alone=alone))
            yield

    def _count(self, part: str, began: float) -> float:
        """Add the time since `began` to a part, and return the time."""
        now = time.perf_counter()
        self.seconds[part] += now - began
        return now

    def _new_memory(self, count: int) -> Memory:
        cuda, layout = cuda_module(), self.layout
        padded = -(-count // LANES) * LANES
        rows = {name: len(layout.buffer(Kind.LOCAL, name)) for name in layout.types(Kind.LOCAL)}
        return Memory(
            count,
            {name: cuda.device_array((n, count), name) for name, n in rows.items()},
            {leaf.name: cuda.device_array(padded * leaf.stored, leaf.value.dtype) for leaf in layout.own(Kind.TILED)},
        )

    def _set_up_batch(self, replications: Sequence[int], memory: Memory, blocks: int) -> None:
        """Write random streams and thetas on the GPU; those of a theta that is not found there are copied."""
        cuda = cuda_module()
        numbers = cuda.to_device(np.array(replications, np.int64))
        found = cuda.to_device(np.ones(len(replications), np.int64))
        kept_theta = memory.local["float32" if self.layout.narrow else "float64"]  # also if no theta is drawn
        signs = cuda.to_device(signs_of(self.scenario))
        self._set_up[blocks, THREADS](self.seed, numbers, signs, memory.local["uint64"], kept_theta, found)
        missing = np.flatnonzero(found.copy_to_host() == 0).tolist()
        if missing:
            theta = self.layout.find(self.path.theta)
            part = kept_theta[theta.first : theta.first + theta.stored]
            values = part.copy_to_host()
            for i in missing:
                values[:, i] = path_parameters(self.scenario, self.seed, replications[i])[0].ravel()[: theta.stored]
            part.copy_to_device(values)

    def _fill_from_host(self, replications: Sequence[int], memory: Memory) -> None:
        """Make the memory of each replication here and copy it."""
        count, own = len(replications), self.layout.own(Kind.LOCAL, Kind.TILED)
        padded = -(-count // LANES) * LANES
        columns = {leaf.name: np.zeros((padded, leaf.stored), leaf.value.dtype) for leaf in own}
        end = max(replications) + 1
        for i, replication in enumerate(replications):
            draw_ahead(self.scenario, self.seed, replication, end)
            values = list(_arrays(self._memory(replication)))
            for leaf in own:
                columns[leaf.name][i] = values[self._positions[leaf.name]].ravel()[: leaf.stored]
        for number_type, buffer in memory.local.items():
            whole = np.zeros(buffer.shape, buffer.dtype)
            for leaf in own:
                if leaf.kind is Kind.LOCAL and leaf.type == number_type:
                    whole[leaf.first : leaf.first + leaf.stored] = columns[leaf.name][:count].T
            buffer.copy_to_device(whole)
        for leaf in own:
            if leaf.kind is Kind.TILED:
                tiles = columns[leaf.name].reshape(-1, LANES, leaf.stored // leaf.row, leaf.row).transpose(0, 2, 1, 3)
                memory.tiled[leaf.name].copy_to_device(np.ascontiguousarray(tiles).ravel())

    # --- results -----------------------------------------------------------------------------------------------------

    def _check(self, memory: Memory, broken: Any) -> None:
        """Raise InputError if a user's model or policy failed, for the first replication in which it did."""
        if self.scenario.perturbation.model.source is not None:
            for fault in self._rows(memory, self.path.fault):
                check_model(self.scenario, fault)
        slots = broken.copy_to_host()
        failed = np.flatnonzero(slots)
        if failed.size == 0:
            return
        slot = int(slots[failed[0]])
        if slot == RAISED or self.configured is None:
            raise InputError(f"{self._subject()}: raised an exception on the GPU; on the CPU the message shows it")
        count = int(self._rows(memory, self.results.picked)[failed[0], 0])
        picks = self._rows(memory, self.results.picks)[failed[0], :count]
        raise invalid_picks(self.scenario, self.configured.policy, self.scenario.users, picks, slot)

    def _rows(self, memory: Memory, array: Array) -> Array:
        """Return the values of an array that replications have of their own, one row per replication."""
        leaf = self.layout.find(array)
        if leaf.kind is Kind.TILED:
            tiles = memory.tiled[leaf.name].copy_to_host().reshape(-1, leaf.stored // leaf.row, LANES, leaf.row)
            return np.ascontiguousarray(tiles.transpose(0, 2, 1, 3).reshape(-1, leaf.stored)[: memory.replications])
        rows = memory.local[leaf.type][leaf.first : leaf.first + leaf.stored].copy_to_host()
        return np.ascontiguousarray(rows.T)

    def _results(self, memory: Memory, curves: Floats) -> Batch:
        if self.configured is None:
            return Batch(curves, np.zeros((len(curves), 0), np.int64))
        return Batch(curves, self._rows(memory, self.results.plays).astype(np.int64))


def _arrays(value: tuple[Any, ...]) -> Iterator[Array]:
    """Yield the arrays of a tuple, also those of nested tuples."""
    for part in value:
        if isinstance(part, tuple):
            yield from _arrays(part)
        elif isinstance(part, np.ndarray):
            yield part
