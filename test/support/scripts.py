"""Python code in a process of its own."""

import os
import subprocess
import sys
import textwrap


def run_script(
    code: str, *args: object, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code to its end, with more environment variables; fail if its exit status is not 0."""
    done = subprocess.run(
        [sys.executable, '-c', textwrap.dedent(code), *map(str, args)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not check or done.returncode == 0, done.stderr
    return done
