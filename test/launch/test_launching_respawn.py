"""Crashed nodes, and launches with `respawn:=true`."""

import pytest

from trt_ros.demo import MODEL


@pytest.mark.parametrize(
    ('container', 'crashing', 'source_starts'),
    [('none', 'detector', 1), ('new', 'component_container_mt', 3)],
)
def test_crashed_node_is_respawned_and_becomes_active(
    start, picture, container, crashing, source_starts
):
    launch = start(
        'detector.launch.py',
        f'model_path:={MODEL}',
        f'source:={picture}',
        f'container:={container}',
        'respawn:=true',
        'respawn_delay:=0.1',
    )

    def activations(node):
        return launch.output.count(f'[{node}]: activate: inactive -> active')

    for lives in (1, 2, 3):
        launch.waits_for(
            lambda lives=lives: (
                activations('detector') == lives
                and activations('image_source') == min(lives, source_starts)
            )
        )
        if lives < 3:
            launch.crash(crashing)
    assert launch.stop() == 0


def test_a_crash_before_the_others_are_up_leaves_none_of_them_behind(start, picture):
    launch = start(
        'detector.launch.py',
        f'model_path:={MODEL}',
        f'source:={picture}',
        'respawn:=true',
        'respawn_delay:=0.1',
    )
    launch.waits_for(lambda: launch.pid_of('detector') and launch.pid_of('image_source'))
    launch.crash('detector')
    launch.says(
        '[detector]: activate: inactive -> active', '[image_source]: activate: inactive -> active'
    )
    assert launch.stop() == 0
