"""Labels of class ids, which may be any text of any message."""

from trt_ros.results.labels import name_of
from trt_ros.ros.class_ids import MAX_CHARACTERS, ClassIds


def test_a_class_id_keeps_its_label_and_each_of_one_message_has_a_name():
    class_ids = ClassIds(['bird'])
    assert class_ids.labels(['cat', 'bird', 'cat', '']).tolist() == [1, 0, 1, 2]
    assert class_ids.labels(['', 'cat']).tolist() == [2, 1]
    assert list(class_ids) == ['bird', 'cat', '']
    texts = [f'{number} {"x" * 1000}' for number in range(3000)]
    class_ids = ClassIds()
    labels = class_ids.labels(texts).tolist()
    assert [class_ids[label] for label in labels] == texts
    class_ids.labels(['car'])
    assert sum(map(len, class_ids)) <= MAX_CHARACTERS


def test_class_ids_in_use_are_kept_and_others_are_forgotten():
    class_ids = ClassIds(['car', 'once'])
    texts = [f'{number} {"x" * 1000}' for number in range(3000)]
    for text in texts:
        assert class_ids.labels(['car', text])[0] == 0
    kept = [text for text in class_ids if text]
    assert kept[0] == 'car' and kept[-1] == texts[-1]
    assert sum(map(len, kept)) < MAX_CHARACTERS + 2000
    assert name_of(class_ids, 1) == '1'
    assert class_ids.labels(['once']).tolist() == [3002]
    assert name_of(class_ids, 3002) == 'once'
