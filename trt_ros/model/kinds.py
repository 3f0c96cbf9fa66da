"""Bindings by the meaning of values."""

from __future__ import annotations


def binding_of(name: str, kind: str, element_names: tuple[str, ...]) -> str:
    """Return the binding of an input."""
    if kind == 'state/camera/image':
        return f'{name}=image:image?channel_order=rgb&resize=stretch&scale=1'
    return f'{name}=tensor:tensors#{name}'
