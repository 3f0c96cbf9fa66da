"""Entry point of `./dev`: complete the set-up, then run a verb."""

from __future__ import annotations

import sys

from environment import SetupError, choose_environment, report
from steps import set_up
from verbs import VERBS


def main(arguments: list[str]) -> int:
    """Complete the set-up, then run the verb; return only if it could not be started."""
    verb, rest = arguments[0], arguments[1:]
    if verb not in VERBS:
        report(f'unknown verb {verb!r}; available: {", ".join(VERBS)}. See ./dev --help')
        return 2
    try:
        environment = choose_environment()
        set_up(environment)
        return VERBS[verb](environment, rest)
    except SetupError as error:
        report(str(error))
    except KeyboardInterrupt:
        report('interrupted; the next start continues from here.')
        return 130
    return 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
