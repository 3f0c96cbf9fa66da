"""Plans on the GPUs of this process, each loaded once for all engines that use it."""

from collections.abc import Callable, Hashable
import threading
from typing import Any
from weakref import WeakSet, WeakValueDictionary

_lock = threading.RLock()  # Garbage collection may release an engine while the lock is held.


class LoadedPlan:
    """
    TensorRT's IRuntime and ICudaEngine of a plan; destroyed with the last engine that uses it.

    :param key: content of the plan and options of its loading; None if it is not shared.
    :param device: CUDA device index.
    :ivar nbytes: GPU memory that they took when they were loaded.
    """

    def __init__(self, key: Hashable, device: int) -> None:
        self.device = device
        self.runtime: Any = None
        self.handle: Any = None
        self.nbytes = 0
        self.loading = threading.Lock()
        self._key = key
        self._engines: WeakSet[Any] = WeakSet()

    @property
    def users(self) -> int:
        """Number of open engines; forgotten ones are not counted."""
        with _lock:
            return len(self._engines)

    def add(self, engine: object) -> None:
        """Count an engine that was opened."""
        with _lock:
            self._engines.add(engine)

    def remove(self, engine: object) -> None:
        """Stop counting an engine that was closed."""
        with _lock:
            self._engines.discard(engine)

    def retire(self) -> None:
        """Load the plan again for the next engine; the present ones keep this one."""
        with _lock:
            if _shared.get(self._key) is self:
                del _shared[self._key]

    def __del__(self) -> None:
        self.handle = None  # TensorRT requires that the engine is destroyed before its runtime.
        self.runtime = None


_plans: WeakSet[LoadedPlan] = WeakSet()
_shared: WeakValueDictionary[Hashable, LoadedPlan] = WeakValueDictionary()


def load_once(key: Hashable, load: Callable[[], tuple[Any, Any, int]], device: int) -> LoadedPlan:
    """
    Return the loaded plan of a key; the first caller loads it, others wait meanwhile.

    :param key: None for a plan that is not shared.
    :param load: returns TensorRT's IRuntime and ICudaEngine, and their GPU memory in bytes.
    """
    with _lock:
        plan = _shared.get(key)
        if plan is None:
            plan = LoadedPlan(key, device)
            _plans.add(plan)
            if key is not None:
                _shared[key] = plan
    with plan.loading:
        if plan.handle is None:
            plan.runtime, plan.handle, plan.nbytes = load()
    return plan


def engines_on(device: int) -> int:
    """Return the number of open engines of this process on a GPU."""
    with _lock:
        return sum(plan.users for plan in _plans if plan.device == device)
