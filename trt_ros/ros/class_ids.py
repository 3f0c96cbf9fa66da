"""Labels of the class ids in received messages."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

#: Limit of all class ids that are kept, with ENTRY_CHARACTERS for each beside its text.
MAX_CHARACTERS = 1_000_000
ENTRY_CHARACTERS = 100


class ClassIds(Sequence[str]):
    """
    The class ids of received messages, by label; for one thread at a time.

    Messages may contain any text. Beyond MAX_CHARACTERS, the class ids unused for longest are
    forgotten: their labels have the name '' then, and are not used again.
    """

    def __init__(self, class_ids: Iterable[str] = ()) -> None:
        self._labels: OrderedDict[str, int] = OrderedDict()  # The one used last is last.
        self._class_ids: dict[int, str] = {}
        self._count = self._characters = 0
        self.labels(class_ids)

    def labels(self, class_ids: Iterable[str]) -> np.ndarray:
        """Return the labels of the class ids of one message, (N,) int32; new ones get a label."""
        while self._characters > MAX_CHARACTERS:
            class_id, label = self._labels.popitem(last=False)
            del self._class_ids[label]
            self._characters -= len(class_id) + ENTRY_CHARACTERS
        return np.array([self._label(each) for each in class_ids], np.int32)

    def _label(self, class_id: str) -> int:
        label = self._labels.get(class_id)
        if label is not None:
            self._labels.move_to_end(class_id)
            return label
        label, self._count = self._count, self._count + 1
        self._labels[class_id], self._class_ids[label] = label, class_id
        self._characters += len(class_id) + ENTRY_CHARACTERS
        return label

    def __len__(self) -> int:
        """Return the number of labels used so far."""
        return self._count

    def __getitem__(self, label: Any) -> Any:
        if not 0 <= label < self._count:
            raise IndexError(label)
        return self._class_ids.get(label, '')
