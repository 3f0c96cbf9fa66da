"""Verb `models`: its table is complete, and its commands are understood."""

import json
from pathlib import Path
import re
import shlex

import pytest

from trt_ros.cli import make_parser
from trt_ros.cli._flags import given_options
from trt_ros.cli.models import command, networks
from trt_ros.engine.download import _parse
from trt_ros.families.registry import ALL_FAMILIES
from trt_ros.results.labels import BUILT_IN
from trt_ros.runtime.options import TiledOptions


@pytest.mark.parametrize('row', networks(), ids=lambda row: row['address'].split('/')[-1][:40])
def test_a_network_has_a_known_decoder_a_secure_address_and_a_command(row):
    assert row['task'] in {each.task for each in ALL_FAMILIES if each.name == row['decoder']}
    assert row['license']
    assert row['nbytes'] > 1e5
    name, _, digest = row['address'].partition('#sha256=')
    file = _parse(name, Path('models'), is_pinned=False)
    assert file.is_of_hub or re.fullmatch('[0-9a-f]{64}', digest)
    args = make_parser(['infer']).parse_args(shlex.split(command(row))[1:])
    options = given_options(args, TiledOptions)
    assert options.model_path == row['address']
    assert options.labels == () or len(options.labels) == 2 or options.labels[0] in BUILT_IN


def test_the_table_is_printed_by_task(call):
    code, out, _ = call('models')
    assert code == 0
    tasks = {line.partition(':')[0] for line in out.splitlines()[::2]}
    assert tasks == {*('detect', 'segment', 'pose', 'classify', 'depth')}
    for task in tasks:
        rows = json.loads(call('models', task, '--json')[1])
        assert {row['task'] for row in rows} == {task}
    with pytest.raises(SystemExit):
        call('models', 'flight')
