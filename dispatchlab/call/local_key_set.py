"""The keys that this thread includes in and excludes from every call, and the guards that change them.

Each thread starts from the same two sets, which upstream calls global: BackendSelect and ADInplaceOrView are included,
the autocast keys are excluded. Guards nest, belong to the thread that entered them, and put back exactly what they
found. Source: c10/core/impl/LocalDispatchKeySet.h, c10/core/InferenceMode.h, aten/src/ATen/core/LegacyTypeDispatch.h.
"""

from __future__ import annotations

import threading
from typing import NamedTuple, Self

from dispatchlab.call.call_observer import observers
from dispatchlab.call.tensor_keys import AUTOGRAD_KEYS
from dispatchlab.model.key_set import FULL_BITS, FUNCTIONALITY_BITS, DispatchKeySet
from dispatchlab.model.keys import AUTOCAST_KEYS, DispatchKey

DEFAULT_INCLUDED = DispatchKeySet.of(DispatchKey.BackendSelect, DispatchKey.ADInplaceOrView)
"""What every thread includes before any guard."""

DEFAULT_EXCLUDED = DispatchKeySet.of(*AUTOCAST_KEYS)
"""What every thread excludes before any guard."""


class Masks(NamedTuple):
    """The two sets as calls use them: `key set = (of the arguments | included) & kept`."""

    included: int
    kept: int


def masks_of(included: DispatchKeySet, excluded: DispatchKeySet) -> Masks:
    """Return the masks for two sets; excluding never takes a backend away."""
    return Masks(included.bits, FULL_BITS & ~(excluded.bits & FUNCTIONALITY_BITS))


DEFAULT_MASKS = masks_of(DEFAULT_INCLUDED, DEFAULT_EXCLUDED)


class _Thread(threading.local):
    """The state of a thread; the class attributes are the initial state."""

    masks: Masks = DEFAULT_MASKS
    included: DispatchKeySet = DEFAULT_INCLUDED
    excluded: DispatchKeySet = DEFAULT_EXCLUDED
    inference: bool = False
    grad_enabled: bool = True


thread = _Thread()


def included() -> DispatchKeySet:
    """Return the keys that this thread includes now.

    >>> from dispatchlab import DispatchKey
    >>> from dispatchlab.call import IncludeDispatchKeyGuard, included
    >>> with IncludeDispatchKeyGuard(DispatchKey.Tracer):
    ...     included().has(DispatchKey.Tracer)
    True
    """
    return thread.included


def excluded() -> DispatchKeySet:
    """Return the keys that this thread excludes now.

    >>> from dispatchlab import DispatchKey
    >>> from dispatchlab.call import excluded
    >>> excluded().has(DispatchKey.AutocastCPU)
    True
    """
    return thread.excluded


def is_inference_mode() -> bool:
    """Return whether tensors that this thread makes now are inference tensors.

    >>> from dispatchlab.call import InferenceMode, is_inference_mode
    >>> with InferenceMode():
    ...     is_inference_mode()
    True
    """
    return thread.inference


class KeyGuard:
    """Sets the state of the thread for the length of a `with` block; the same guard may be entered again inside."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[tuple[Masks, DispatchKeySet, DispatchKeySet, bool]] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def _wanted(self) -> tuple[DispatchKeySet, DispatchKeySet, bool]:
        """Return the sets to include and to exclude, and whether this is inference mode."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        new_included, new_excluded, inference = self._wanted()
        self._found.append((thread.masks, thread.included, thread.excluded, thread.inference))
        thread.included, thread.excluded, thread.inference = new_included, new_excluded, inference
        thread.masks = masks_of(new_included, new_excluded)
        for observer in (*observers,):
            observer.guard_opened(self, new_included, new_excluded)
        return self

    def __exit__(self, *error: object) -> None:
        thread.masks, thread.included, thread.excluded, thread.inference = self._found.pop()
        for observer in (*observers,):
            observer.guard_closed(self, thread.included, thread.excluded)


class _KeysGuard(KeyGuard):
    """A guard of some keys."""

    __slots__ = ("keys",)

    def __init__(self, keys: DispatchKeySet | DispatchKey) -> None:
        super().__init__()
        self.keys = DispatchKeySet.of(keys) if isinstance(keys, DispatchKey) else keys

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.keys}>"


class IncludeDispatchKeyGuard(_KeysGuard):
    """Include further keys.

    >>> from dispatchlab import DispatchKey, Lab, tensor, trace
    >>> from dispatchlab.call import IncludeDispatchKeyGuard
    >>> lab = Lab()
    >>> with IncludeDispatchKeyGuard(DispatchKey.Tracer), trace() as record:
    ...     _ = lab.neg(tensor([1.0]))
    >>> record.calls[0].keys.highest()
    DispatchKey.Tracer
    """

    __slots__ = ()

    def _wanted(self) -> tuple[DispatchKeySet, DispatchKeySet, bool]:
        return thread.included | self.keys, thread.excluded, thread.inference


class ExcludeDispatchKeyGuard(_KeysGuard):
    """Exclude further keys; an excluded key stays excluded even if it is included.

    >>> from dispatchlab import DispatchKey, Lab, tensor, trace
    >>> from dispatchlab.call import ExcludeDispatchKeyGuard
    >>> lab = Lab()
    >>> with ExcludeDispatchKeyGuard(DispatchKey.AutogradCPU), trace() as record:
    ...     _ = lab.neg(tensor([1.0]))
    >>> record.calls[0].keys.highest()
    DispatchKey.CPU
    """

    __slots__ = ()

    def _wanted(self) -> tuple[DispatchKeySet, DispatchKeySet, bool]:
        return thread.included, thread.excluded | self.keys, thread.inference


class ForceDispatchKeyGuard(KeyGuard):
    """Replace both sets.

    >>> from dispatchlab import DispatchKey, DispatchKeySet
    >>> from dispatchlab.call import ForceDispatchKeyGuard, included
    >>> with ForceDispatchKeyGuard(DispatchKeySet.of(DispatchKey.Meta), DispatchKeySet()):
    ...     included()
    DispatchKeySet.of(DispatchKey.Meta)
    """

    __slots__ = ("excluded", "included")

    def __init__(self, included: DispatchKeySet, excluded: DispatchKeySet) -> None:
        super().__init__()
        self.included, self.excluded = included, excluded

    def __repr__(self) -> str:
        return f"<{type(self).__name__} includes {self.included}, excludes {self.excluded}>"

    def _wanted(self) -> tuple[DispatchKeySet, DispatchKeySet, bool]:
        return self.included, self.excluded, thread.inference


class AutoDispatchBelowAutograd(ExcludeDispatchKeyGuard):
    """Exclude every autograd key, as an autograd kernel does while it calls on.

    >>> from dispatchlab import Lab, tensor
    >>> from dispatchlab.call import AutoDispatchBelowAutograd
    >>> lab = Lab()
    >>> with AutoDispatchBelowAutograd():
    ...     lab.neg(tensor([1.0], requires_grad=True)).requires_grad
    False
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(AUTOGRAD_KEYS)


class AutoDispatchBelowADInplaceOrView(ExcludeDispatchKeyGuard):
    """Exclude every autograd key and ADInplaceOrView.

    >>> from dispatchlab import DispatchKey
    >>> from dispatchlab.call import AutoDispatchBelowADInplaceOrView, excluded
    >>> with AutoDispatchBelowADInplaceOrView():
    ...     excluded().has(DispatchKey.ADInplaceOrView)
    True
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(AUTOGRAD_KEYS.add(DispatchKey.ADInplaceOrView))


class InferenceMode(KeyGuard):
    """Make tensors without autograd keys and record no call; with False, undo this inside a block.

    >>> from dispatchlab import tensor
    >>> from dispatchlab.call import InferenceMode
    >>> with InferenceMode():
    ...     tensor([1.0]).is_inference()
    True
    """

    __slots__ = ("_grad_enabled", "enabled")

    def __init__(self, enabled: bool = True) -> None:  # noqa: FBT001, FBT002 - the signature of c10::InferenceMode
        super().__init__()
        self.enabled = enabled
        self._grad_enabled: list[bool] = []

    def __enter__(self) -> Self:
        super().__enter__()
        self._grad_enabled.append(thread.grad_enabled)
        thread.grad_enabled = not self.enabled
        return self

    def __exit__(self, *error: object) -> None:
        thread.grad_enabled = self._grad_enabled.pop()
        super().__exit__(*error)

    def _wanted(self) -> tuple[DispatchKeySet, DispatchKeySet, bool]:
        if self.enabled:
            return thread.included.remove(DispatchKey.ADInplaceOrView), thread.excluded | AUTOGRAD_KEYS, True
        return thread.included.add(DispatchKey.ADInplaceOrView), thread.excluded - AUTOGRAD_KEYS, False
