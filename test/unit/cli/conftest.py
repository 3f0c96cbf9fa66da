"""A verb of the command line, called in this process."""

import pytest

from trt_ros.cli import main


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'xdg'))
    return tmp_path / 'xdg' / 'trt_ros'


@pytest.fixture
def call(capsys, cache):
    """Run a verb; give its exit code, stdout and stderr."""

    def run(*argv):
        code = main([str(each) for each in argv])
        return code, *capsys.readouterr()

    return run
