"""The command line itself: verbs, help, exit codes."""

from argparse import ArgumentParser
import errno
import os
import re
import signal
import subprocess
import sys
import types

import pytest

from support.scripts import run_script
from support.waiting import DEADLINE_SECONDS
from trt_ros import cli
from trt_ros.cli._flags import add_option_flags
from trt_ros.errors import TrtRosError


@pytest.fixture
def verb(monkeypatch):
    """Put a verb in the place of `doctor` that does what the test says."""

    def install(run, add_arguments=lambda parser: None):
        module = types.ModuleType('trt_ros.cli.doctor', 'A sample.\n\nAnd more of it.')
        module.run, module.add_arguments = run, add_arguments
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return install


def raising(error):
    def run(args):
        raise error

    return run


@pytest.mark.parametrize(
    ('arguments', 'said'),
    [
        ([], 'VERB'),
        (['frobnicate'], 'infer'),  # All verbs are listed.
        (['doctor', 'a', '--new', 'b'], 'unrecognized arguments: --new'),
    ],
)
def test_missing_and_unknown_verbs_and_flags_are_usage_errors(verb, capsys, arguments, said):
    verb(lambda args: 0, lambda parser: parser.add_argument('files', nargs='*'))
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2 and said in capsys.readouterr().err


def test_device_takes_an_index_or_auto(capsys):
    parser = ArgumentParser(prog='x')
    add_option_flags(parser, ['device'])
    assert [parser.parse_args(['--device', text]).device for text in ('auto', '3')] == [-1, 3]
    with pytest.raises(SystemExit):
        parser.parse_args(['--device', 'all'])
    assert "--device: invalid int or auto value: 'all'" in capsys.readouterr().err


@pytest.mark.parametrize('task', ['detect', 'segment', 'classify', 'pose', 'depth'])
def test_the_name_of_a_task_runs_infer(task, capsys):
    assert cli.main([task, '--model', 'missing.onnx', 'missing.png']) == 1
    written = capsys.readouterr().err
    assert written.startswith(f'trt-ros: infer runs networks of every task, also for {task}.\n')
    assert 'missing' in written.partition('\n')[2]


@pytest.mark.parametrize(
    'arguments',
    [
        'model a b --many 3',
        'model --many 3 a b',
        '--many 3 model a b',
        'model a --many 3 b',
        '--many 3 -- model a b',
    ],
)
def test_files_and_flags_are_taken_in_any_order(verb, arguments):
    args = parsed(verb, *arguments.split())
    assert (args.model, args.files, args.many) == ('model', ['a', 'b'], 3)


def test_files_that_begin_with_a_dash_are_taken_after_two(verb):
    args = parsed(verb, '--many', '3', '--', '-model', '-a')
    assert (args.model, args.files, args.many) == ('-model', ['-a'], 3)


def parsed(verb, *arguments):
    """Return the arguments of a verb with files and a flag."""

    def add_arguments(parser):
        parser.add_argument('model')
        parser.add_argument('files', nargs='*')
        parser.add_argument('--many', type=int)

    taken = []
    verb(lambda args: taken.append(args) or 7, add_arguments)
    assert cli.main(['doctor', *arguments]) == 7  # The exit code is the verb's own.
    return taken[0]


def test_errors_of_ours_and_interrupts_have_no_traceback(verb, capsys):
    verb(raising(TrtRosError('No cake.', cause='It was eaten.', remedy='Bake one.')))
    assert cli.main(['doctor']) == 1
    captured = capsys.readouterr()
    assert captured.out == ''
    assert captured.err == 'trt-ros doctor: No cake.\nCause: It was eaten.\nRemedy: Bake one.\n'
    verb(raising(KeyboardInterrupt()))
    assert cli.main(['doctor']) == 130
    assert capsys.readouterr().err == ''


@pytest.mark.parametrize('number', [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG])
def test_a_path_that_cannot_be_used_is_an_error_without_a_traceback(verb, capsys, number):
    verb(raising(OSError(number, os.strerror(number), 'a.png')))
    assert cli.main(['doctor']) == 1
    said = f'a.png cannot be read or written.\nCause: {os.strerror(number)}\n'
    assert capsys.readouterr().err.startswith(f'trt-ros doctor: {said}Remedy: ')


@pytest.mark.parametrize(
    'error',
    [ZeroDivisionError('bug'), OSError(errno.EPERM, 'no'), OSError(errno.EBADF, 'no', 'a')],
)
def test_unexpected_exception_prints_traceback(verb, error):
    verb(raising(error))
    with pytest.raises(type(error)):
        cli.main(['doctor'])


#: A verb that prints much.
PRINTS = (
    'import sys, types\n'
    'from trt_ros import cli\n'
    'module = types.ModuleType("trt_ros.cli.doctor", "A sample.")\n'
    'def run(args):\n'
    '    sys.stdin.read()\n'  # Until the reader is gone.
    '    print("x" * 1000000)\n'
    '    return 0\n'
    'module.run, module.add_arguments = run, lambda parser: None\n'
    'sys.modules[module.__name__] = module\n'
    'sys.exit(cli.main(["doctor"]))\n'
)


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='no /dev/full')
def test_a_full_disk_behind_the_output_is_an_error_without_traceback():
    with open('/dev/full', 'w') as full:
        done = subprocess.run(
            [sys.executable, '-c', PRINTS],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
    assert done.returncode == 1
    assert re.fullmatch(
        'trt-ros doctor: A file cannot be read or written.\nCause: No space left on device\n.*\n',
        done.stderr,
    )


def test_closed_pipe_exits_without_traceback():
    process = subprocess.Popen(
        [sys.executable, '-c', PRINTS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    process.stdin.close()
    with process.stderr as stderr:
        assert stderr.read() == b''
    assert process.wait(DEADLINE_SECONDS) == 141


def test_help_of_infer_imports_nothing_heavy():
    code = (
        'import sys\n'
        'from trt_ros.cli import main\n'
        'try:\n'
        '    main(["infer", "--help"])\n'
        'except SystemExit:\n'
        '    heavy = set("numpy cv2 onnxruntime onnx rclpy tqdm hashlib email".split())\n'
        '    print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n'
    )
    # Without site, whose .pth files import what they like.
    process = subprocess.run(
        [sys.executable, '-S', '-c', code],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stderr == '[]\n'


@pytest.mark.slow
@pytest.mark.parametrize('encoding', ['ascii', 'utf-8'])
def test_arguments_that_terminal_cannot_encode_are_escaped(tmp_path, encoding):
    path = tmp_path / os.fsdecode('写'.encode() + b'\xff.onnx')
    code = 'import sys; from trt_ros.cli import main; sys.exit(main(["inspect", sys.argv[1]]))'
    done = run_script(code, path, check=False, PYTHONIOENCODING=encoding)
    assert done.returncode == 1
    assert 'udcff.onnx' in done.stderr and 'Traceback' not in done.stderr


def test_output_that_terminal_cannot_encode_is_escaped():
    code = (
        'from types import SimpleNamespace; from trt_ros import cli; '
        'cli.run(SimpleNamespace(run=lambda args: print("h\\u00f6he", "a\\ud800") or 0))'
    )
    done = run_script(code, PYTHONIOENCODING='ascii')
    assert (done.stdout, done.stderr) == ('h\\xf6he a\\ud800\n', '')


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGHUP])
def test_signal_closes_open_resources(verb, number):
    closed = []

    def work(args):
        try:
            signal.raise_signal(number)
        finally:
            closed.append(True)

    before = signal.getsignal(number)
    traced_by = sys.gettrace()  # Of coverage or a debugger.
    verb(work)
    with pytest.raises(SystemExit) as ended:
        cli.main(['doctor'])
    assert (signal.getsignal(number), sys.gettrace()) == (before, traced_by)
    assert (ended.value.code, closed) == (128 + number, [True])


@pytest.mark.slow
@pytest.mark.parametrize(
    'number', [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_a_signal_during_an_import_ends_a_verb_in_order(number, tmp_path):
    # NumPy, while its extension is loaded, reports any exception as a damaged installation.
    code = (
        'import os, signal, sys\n'
        'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
        'class Signal:\n'
        '    begun = sent = False\n'
        '    def find_spec(self, name, path=None, target=None):\n'
        '        if self.begun and not self.sent:\n'
        '            self.sent = True\n'
        f'            os.kill(os.getpid(), {int(number)})\n'
        '        self.begun |= name.endswith("core._multiarray_umath")\n'
        'from trt_ros.cli import main\n'
        'sys.meta_path.insert(0, Signal())\n'
        'try:\n'
        '    code = main(sys.argv[1:])\n'
        'finally:\n'
        '    print(sys.meta_path[0].sent)\n'
        'sys.exit(code)'
    )
    words = ('label', 'missing.mcap', '--model', 'missing.onnx', '--output')
    done = run_script(code, *words, tmp_path / 'labeled.mcap', check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, 'True\n', '')


@pytest.mark.parametrize('flags', [('--cache-dir', 'x'), ('--cache-dir=x',)])
def test_a_flag_under_its_old_name_is_read_and_named_anew(tmp_path, monkeypatch, capsys, flags):
    monkeypatch.chdir(tmp_path)
    assert cli.main(['cache', 'list', *flags]) == 0
    said = capsys.readouterr()
    assert said.out.rstrip().endswith(str(tmp_path / 'x'))
    assert said.err == 'trt-ros: --cache-dir is now --engine-cache-dir, and will be removed.\n'


@pytest.mark.parametrize(
    'words, needed',
    [
        ('cache list --all', 'prune'),
        ('cache verify --dry-run', 'prune'),
        ('inspect net.onnx --picture net.svg', 'a bundle (.yaml)'),
        ('inspect . --json', 'a file'),
        ('inspect . --layers', 'a single network'),
        ('inspect both.yaml --layers', 'a single network'),
    ],
)
def test_a_flag_without_effect_is_refused(tmp_path, monkeypatch, capsys, words, needed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert cli.main(words.split()) == 1
    verb, flag = words.split()[0], words.split()[2]
    assert capsys.readouterr().err == (
        f'trt-ros {verb}: {flag} has no effect without {needed}.\n'
        f'Remedy: Use {needed}, or leave {flag} out.\n'
    )


@pytest.mark.parametrize('flag', ['--frames-in-flight', '--contexts'])
def test_infer_which_takes_one_file_after_another_has_no_flags_of_overlap(capsys, flag):
    with pytest.raises(SystemExit):
        cli.main(['infer', 'a.png', '--model', 'a.onnx', flag, '2'])
    assert f'unrecognized arguments: {flag} 2' in capsys.readouterr().err


def test_old_names_of_flags_are_not_in_the_help(capsys):
    for verb in ('bench', 'build', 'cache', 'verify'):
        with pytest.raises(SystemExit):
            cli.main([verb, '--help'])
    found = capsys.readouterr().out
    assert '--engine-cache-dir' in found
    assert not set(re.findall(r'--[a-z-]+', found)) & set(cli.RENAMED)
