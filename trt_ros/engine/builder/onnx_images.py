"""Conversion of int32 image inputs to uint8, the only integers that preprocessing writes."""

from typing import Any

from trt_ros.engine.builder.onnx_check import nodes

CHANNELS = (1, 3, 4)


def images_as_uint8(model: Any) -> list[str]:
    """
    Make int32 inputs of the shape of images uint8 in place; results for pixels stay the same.

    :returns: names of the changed inputs.
    """
    import onnx

    changed = [value for value in model.graph.input if _is_int32_image(value.type.tensor_type)]
    for value in changed:
        pixels, floats, integers = value.name, f'{value.name}_float32', f'{value.name}_int32'
        for node in nodes(model.graph):
            for index, name in enumerate(node.input):
                if name == pixels:
                    node.input[index] = integers
        # TensorRT converts uint8 to float only.
        for place, (source, target, kind) in enumerate(
            ((pixels, floats, onnx.TensorProto.FLOAT), (floats, integers, onnx.TensorProto.INT32))
        ):
            cast = onnx.helper.make_node('Cast', [source], [target], target, to=kind)
            model.graph.node.insert(place, cast)
        value.type.tensor_type.elem_type = onnx.TensorProto.UINT8
    return [value.name for value in changed]


def _is_int32_image(tensor: Any) -> bool:
    import onnx

    sizes = [size.dim_value for size in tensor.shape.dim]
    is_image = len(sizes) == 4 and (sizes[1] in CHANNELS or sizes[3] in CHANNELS)
    return is_image and tensor.elem_type == onnx.TensorProto.INT32
