"""Weights of 8 and 4 bits in the layout of MatMulNBits of ONNX Runtime, with the values of Q8_0 and Q4_0 of GGUF."""
import numpy

BLOCK = 32  # weights of a row that share a scale


def quantised(weight, bits):
    """([rows, blocks, bytes of a block] uint8, [rows, blocks] f32 scales) of [rows, columns] f32. A value is the scale times the bits less 128
    or 8; of two values of 4 bits the first is the low half of a byte."""
    groups = weight.reshape(weight.shape[0], -1, BLOCK)
    if bits == 8:
        scales = numpy.abs(groups).max(axis=2) / 127
        values = numpy.rint(groups * inverse(scales)[..., None]) + 128
        return values.astype(numpy.uint8), scales.astype(numpy.float32)
    largest = numpy.take_along_axis(groups, numpy.abs(groups).argmax(axis=2)[..., None], axis=2)[..., 0]
    scales = largest / -8
    values = numpy.clip(numpy.floor(groups * inverse(scales)[..., None] + 8.5), 0, 15).astype(numpy.uint8)
    return values[..., 0::2] | values[..., 1::2] << 4, scales.astype(numpy.float32)


def inverse(scales):
    return numpy.divide(1, scales, out=numpy.zeros_like(scales), where=scales != 0)
