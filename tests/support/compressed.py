"""Chunks as LZ4 (32004) and bitshuffle (32008) write them, made with NumPy and liblz4, and files of such chunks."""

import ctypes
import struct

import h5py
import numpy as np

LZ4, BITSHUFFLE = 32004, 32008
_lz4 = ctypes.CDLL("liblz4.so.1")


def _packed(data):
    room = ctypes.create_string_buffer(_lz4.LZ4_compressBound(len(data)))
    size = _lz4.LZ4_compress_default(data, room, len(data), len(room))
    return room.raw[:size]


def _bits(block):
    """Row 8 b + k: bit k of byte b of every element."""
    return np.packbits(np.unpackbits(block.view(np.uint8).reshape(len(block), -1), axis=1, bitorder="little").T, axis=1,
                       bitorder="little").tobytes()


def bitshuffle(values, block=None):
    """A chunk of bitshuffle and LZ4; block in elements."""
    flat = np.ascontiguousarray(values).ravel()
    block = block or max(128, 8192 // flat.itemsize // 8 * 8)
    whole = len(flat) // 8 * 8
    parts = [struct.pack(">QI", flat.nbytes, block * flat.itemsize)]
    for first in range(0, whole, block):
        packed = _packed(_bits(flat[first:min(first + block, whole)]))
        parts += [struct.pack(">I", len(packed)), packed]
    return b"".join(parts) + flat[whole:].tobytes()


def lz4(values, block=1 << 16):
    """A chunk of LZ4; block in bytes, those that do not shrink are kept."""
    data = np.ascontiguousarray(values).tobytes()
    parts = [struct.pack(">QI", len(data), block)]
    for first in range(0, len(data), block):
        plain = data[first:first + block]
        packed = _packed(plain)
        packed = packed if len(packed) < len(plain) else plain
        parts += [struct.pack(">I", len(packed)), packed]
    return b"".join(parts)


def write(group, name, values, chunk, filter_id=BITSHUFFLE, parameters=None, encode=None):
    """A dataset of such chunks; encode(array) -> bytes instead of the filter's own."""
    values = np.asarray(values)
    parameters = parameters or ((0, 3, values.itemsize, 0, 2) if filter_id == BITSHUFFLE else (0,))
    encode = encode or (bitshuffle if filter_id == BITSHUFFLE else lz4)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(chunk)
    plist.set_filter(filter_id, h5py.h5z.FLAG_OPTIONAL, parameters)  # h5py itself need not have it
    space = h5py.h5s.create_simple(values.shape)
    dataset = h5py.h5d.create(group.id, name.encode(), h5py.h5t.py_create(values.dtype), space, plist)
    for corner in np.ndindex(*(-(-n // c) for n, c in zip(values.shape, chunk))):
        start = tuple(i * c for i, c in zip(corner, chunk))
        whole = np.zeros(chunk, values.dtype)
        part = values[tuple(slice(s, s + c) for s, c in zip(start, chunk))]
        whole[tuple(slice(n) for n in part.shape)] = part
        dataset.write_direct_chunk(start, encode(whole))
    return dataset
