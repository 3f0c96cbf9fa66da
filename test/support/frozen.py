"""Objects that the garbage collector never visits, whatever the nodes of a process do."""

import gc

COLLECTOR = {name: getattr(gc, name) for name in ('freeze', 'unfreeze')}


def freeze_present_objects() -> None:
    """
    Exclude all present objects from all collections.

    A node would include them again in each configure and cleanup, which then takes 0.4 s in a
    process that has collected all tests, and copies the memory that forked processes share.
    """
    gc.freeze()
    for name in COLLECTOR:
        setattr(gc, name, lambda: None)
