"""Recordings as data sets of LeRobot, by LeRobot's own loader."""

import numpy as np
import pytest

pytest.importorskip('pyarrow', reason='it writes Parquet: pip install pyarrow')

from lerobot_data_set import main

from support.recordings import STORE, compressed_image, header, raw_image, write_recording

JOINTS = ['pan', 'lift', 'grip']


def joint_state(index, positions, names=('grip', 'pan', 'lift')):
    kind = STORE.types['sensor_msgs/msg/JointState']
    empty = np.zeros(0)
    return kind(header(index), [*names], np.float64(positions), empty, empty)


@pytest.fixture
def export(tmp_path, capsys):
    """Record joints at 10 Hz and images at 5 Hz, and export them at 5 frames per second."""

    def run(*more, names=('grip', 'pan', 'lift')):
        for episode in range(2):
            messages = []
            for index in range(1, 40):
                state = joint_state(index, [index, index + 0.5, -index], names)
                messages.append(('/joint_states', index, state))
                if index % 2 == 0:
                    pixels = np.full((64, 80, 3), 6 * index, np.uint8)
                    messages.append(('/top/image_raw', index, raw_image(index, pixels)))
                    messages.append(('/hand/compressed', index, compressed_image(index, pixels)))
            write_recording(tmp_path / f'drives/episode_{episode}', messages)
        flags = ['--joints', ','.join(JOINTS), '--fps', '5', '--task', 'pick', *more]
        code = main([str(tmp_path / 'drives'), '--output', str(tmp_path / 'data'), *flags])
        return code, capsys.readouterr().out, tmp_path / 'data'

    return run


def test_lerobot_loads_frames_and_trains_with_them(export, monkeypatch):
    torch = pytest.importorskip('torch')
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    reason = "no LeRobot with data sets: pip install 'lerobot[dataset]'"
    module = pytest.importorskip('lerobot.datasets.lerobot_dataset', reason=reason)
    from lerobot.configs.types import FeatureType
    from lerobot.policies.factory import get_policy_class, make_policy_config
    from lerobot.utils.feature_utils import dataset_to_policy_features

    code, _, folder = export()
    assert code == 0
    steps = {'action': [0.0, 0.2, 0.4]}
    data = module.LeRobotDataset('local/drives', root=folder, delta_timestamps=steps)
    assert (len(data), data.num_episodes, data[20]['episode_index'].item()) == (36, 2, 1)
    first = data[0]
    assert first['task'] == 'pick' and first['observation.state'].tolist() == [2.5, -2, 2]
    assert first['action'].tolist() == [[4.5, -4, 4], [6.5, -6, 6], [8.5, -8, 8]]
    for name in ('top', 'hand'):
        image = first[f'observation.images.{name}']
        assert image.shape == (3, 64, 80)
        torch.testing.assert_close(image, torch.full_like(image, 12 / 255), atol=1.1 / 255, rtol=0)

    features = dataset_to_policy_features(data.meta.features)
    actions = {name: each for name, each in features.items() if each.type is FeatureType.ACTION}
    inputs = {name: each for name, each in features.items() if name not in actions}
    config = make_policy_config(
        'act', input_features=inputs, output_features=actions, device='cpu', chunk_size=3,
        n_action_steps=3, dim_model=32, n_heads=2, dim_feedforward=64, n_encoder_layers=1,
        pretrained_backbone_weights=None,
    )  # fmt: skip
    policy = get_policy_class('act')(config)
    batch = next(iter(torch.utils.data.DataLoader(data, batch_size=4)))
    loss, _ = policy.forward(batch)
    loss.backward()
    assert torch.isfinite(loss)


def test_tables_have_a_constant_rate_and_the_next_state_as_action(export):
    from pyarrow import parquet

    code, printed, folder = export('--cameras', 'top=/top/image_raw')
    assert code == 0 and printed.count(': 18 frames') == 2
    rows = parquet.read_table(folder / 'data/chunk-000/file-001.parquet').to_pylist()
    assert [row['index'] for row in rows] == list(range(18, 36))
    np.testing.assert_allclose([row['timestamp'] for row in rows], np.arange(18) / 5, rtol=1e-6)
    states = [row['observation.state'] for row in rows]
    assert [row['action'] for row in rows[:-1]] == states[1:]
    assert rows[0].keys() == {
        *('observation.state', 'action', 'observation.images.top', 'timestamp', 'task_index'),
        *('frame_index', 'episode_index', 'index'),
    }


@pytest.mark.parametrize(
    ('more', 'names', 'message'),
    [
        (['--action', '/commands'], ('grip', 'pan', 'lift'), 'has no topic /commands'),
        ([], ('grip', 'pan', 'wrist'), 'no position of lift.\nCause: It has grip, pan, wrist'),
    ],
)
def test_recordings_that_lack_something_are_left_out_with_the_reason(export, more, names, message):
    code, printed, folder = export(*more, names=names)
    assert code == 1 and printed.count(message) == 2
    assert not folder.exists()


def test_the_last_state_of_a_recording_is_an_action(export):
    code, printed, _ = export('--fps', '10')  # Joints and frames at 2, 3 .. 39 steps.
    assert code == 0 and printed.count(': 37 frames') == 2


@pytest.mark.parametrize('fps', ['0', '-1'])
def test_no_frames_per_second_are_refused(export, capsys, fps):
    with pytest.raises(SystemExit, match='2'):
        export('--fps', fps)
    assert f'--fps is {fps}: set it to at least 1' in capsys.readouterr().err
