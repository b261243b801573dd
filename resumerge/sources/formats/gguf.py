"""The GGUF format. The header is validated before anything in the file is used.

The format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): a magic number and a
version; the number of tensors and of metadata values; these values; for each tensor its name,
dimensions (the innermost first), type and offset; then the data, aligned. Vocabularies make the
header long, so only the part that is being read is in memory.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import xxhash

from resumerge.errors import refuse
from resumerge.sources.formats.weight_format import (
    Header,
    ReadRange,
    WeightFormat,
    damaged,
    damaged_from_start,
)
from resumerge.sources.types import Description, GgufBlocks
from resumerge.tensors import Stored

FORMAT = "GGUF file"
SUFFIX = ".gguf"
MAGIC = b"GGUF"
VERSIONS = (2, 3)

LARGEST_HEADER = 256 << 20
"""The largest header, in bytes. A vocabulary of 256,000 tokens with its merges takes 16 MiB."""

MOST_VALUES = 1 << 16
"""The most metadata values of a model; usual models have about 40."""

MOST_TENSORS = 1 << 18
MOST_ELEMENTS = 1 << 48
MOST_DIMENSIONS = 4
LONGEST_NAME = 1 << 10
LONGEST_TEXT = 4 << 20
"""The longest text, in bytes. The longest ones are chat templates and licences."""

KEPT = 4096
"""The most elements of an array whose values are kept; longer ones (vocabularies) are skipped."""

MOST_IN_ARRAY = 4_000_000
LARGEST_ALIGNMENT = 1 << 20
USUAL_ALIGNMENT = 32
HEADER_PIECE_BYTES = 1 << 18
"""The number of bytes of the header in one read."""

VOCABULARY_PIECE_BYTES = 4 << 20
"""The number of bytes of the header in one read, if the vocabulary is needed."""

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_BOOL, _TEXT, _ARRAY = 7, 8, 9

PLAIN = {
    0: "F32",
    1: "F16",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    30: "BF16",
}
"""The tensor types of plain numbers: safetensors' dtypes by GGUF's codes."""

CODED = {
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    39: ("MXFP4", 32, 17),
}
"""The tensor types of blocks: name, elements and bytes of a block, by GGUF's codes."""

_NOT_READ = {
    **{9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S"},
    **{21: "IQ3_S", 22: "IQ2_S", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4"},
}


def whole_values(
    read: ReadRange, *, size: int, file: str, where: str, names: Collection[str]
) -> dict[str, Any]:
    """Return the metadata values of a model, by key; None for an array that is skipped.

    Args:
        read: reads ranges of the file.
        size: the size of the file in bytes.
        file: the file's path relative to the source's folder.
        where: the file's name in messages.
        names: the keys of arrays that are returned even if they are longer than `KEPT`.

    Raises:
        InputError: the file is damaged.
    """
    return _Reader(read, size, file, where, names, VOCABULARY_PIECE_BYTES).described()


class Gguf(WeightFormat):
    """The format of llama.cpp."""

    name = FORMAT
    suffixes = (SUFFIX,)
    any_name = True
    header_first = True

    def read_header(self, read: ReadRange, *, size: int, file: str, where: str) -> Header:
        return _Reader(read, size, file, where).header()


@dataclass
class _Reader:
    """The reader of one header, which is read once from its beginning to its end."""

    read: ReadRange
    size: int
    file: str
    where: str
    whole: Collection[str] = ()
    piece: int = HEADER_PIECE_BYTES

    def __post_init__(self) -> None:
        self._data, self._at, self._start = b"", 0, 0
        self._digest = xxhash.xxh3_128()

    def header(self) -> Header:
        """Return the header.

        Raises:
            InputError: the file is damaged, or has a version or tensor types that cannot be read.
        """
        tensor_count, value_count = self._counts()
        metadata = dict(self._values(value_count))
        entries = [self._tensor_entry() for _ in range(tensor_count)]
        alignment = self._alignment(metadata.get("general.alignment", USUAL_ALIGNMENT))
        data_start = -(-self._place // alignment) * alignment
        self._forget()
        tensors_by_name, coded_blocks = self._tensors(entries, data_start, alignment)
        return Header(
            tensors_by_name, self._digest.hexdigest(), described=Description(metadata, coded_blocks)
        )

    def described(self) -> dict[str, Any]:
        """Return the metadata values of the model, by key."""
        _, value_count = self._counts()
        return dict(self._values(value_count))

    @property
    def _place(self) -> int:
        """The offset in the file of the next byte to parse."""
        return self._start + self._at

    def _bad(self, expected: str, found: str) -> NoReturn:
        raise damaged(FORMAT, self.where, expected, found)

    def _need(self, count: int) -> None:
        """Read from the file until the next `count` bytes are in memory."""
        if len(self._data) - self._at >= count:
            return
        self._forget()
        missing_bytes = count - len(self._data)
        if self._start + count > min(self.size, LARGEST_HEADER):
            self._bad(
                f"a header of at most {min(self.size, LARGEST_HEADER)} bytes",
                f"{count} bytes more after {self._start}",
            )
        start = self._start + len(self._data)
        end = min(start + max(missing_bytes, self.piece), self.size)
        self._data += self.read(start, end)
        if len(self._data) < count:
            self._bad(f"{self.size} bytes", f"{start + len(self._data)}: the file became shorter")

    def _forget(self) -> None:
        """Add the parsed bytes to the digest, and free their memory."""
        self._digest.update(self._data[: self._at])
        self._start += self._at
        self._data, self._at = self._data[self._at :], 0

    def _take(self, form: str) -> Any:
        """Return the next number.

        Args:
            form: the number's type as a format character of `struct`.
        """
        number_format = struct.Struct("<" + form)
        self._need(number_format.size)
        [number] = number_format.unpack_from(self._data, self._at)
        self._at += number_format.size
        return number

    def _text(self, longest: int, what: str) -> str:
        length = self._take("Q")
        if length > longest:
            self._bad(f"{what} of at most {longest} bytes", f"a length of {length}")
        self._need(length)
        text_bytes = self._data[self._at : self._at + length]
        self._at += length
        try:
            return text_bytes.decode()
        except UnicodeDecodeError:
            self._bad(f"{what} in UTF-8", repr(text_bytes[:40])[1:])

    def _counts(self) -> tuple[int, int]:
        """Parse the start of the header; return the number of tensors and of metadata values."""
        first_bytes = self.read(0, 24)
        if len(first_bytes) < 24:
            self._bad("at least 24 bytes", f"a file of {len(first_bytes)} bytes")
        if first_bytes[:4] != MAGIC:
            raise damaged_from_start(
                FORMAT,
                self.where,
                first_bytes,
                "a file that begins with GGUF",
                repr(first_bytes[:8])[1:],
            )
        self._at = 0
        self._take("I")
        version = self._take("I")
        if version not in VERSIONS:
            swapped_version = int.from_bytes(version.to_bytes(4, "big"), "little")
            raise refuse(
                "This version of GGUF is not read",
                where=self.where,
                expected=f"version {' or '.join(map(str, VERSIONS))}, little-endian",
                found=f"version {swapped_version}, big-endian"
                if swapped_version < 100
                else f"version {version}",
                fix="convert the original model again, with a converter of today",
            )
        tensor_count, value_count = self._take("Q"), self._take("Q")
        if tensor_count > MOST_TENSORS or value_count > MOST_VALUES:
            self._bad(
                f"at most {MOST_TENSORS:,} tensors and {MOST_VALUES:,} values",
                f"{tensor_count:,} and {value_count:,}",
            )
        return tensor_count, value_count

    def _values(self, count: int) -> Iterator[tuple[str, Any]]:
        """Yield the key and value of each metadata value; None for an array that is skipped."""
        previous_names = set[str]()
        for _ in range(count):
            name = self._text(LONGEST_NAME, "a name")
            if name in previous_names:
                self._bad("each name once", f"{name!r} twice")
            previous_names.add(name)
            value_type = self._take("I")
            yield name, self._array(name) if value_type == _ARRAY else self._value(name, value_type)

    def _value(self, name: str, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._take(_NUMBERS[kind])
        if kind == _TEXT:
            return self._text(LONGEST_TEXT, f"a text {name!r}")
        if kind == _BOOL:
            byte = self._take("B")
            if byte > 1:
                self._bad("0 or 1", f"{name!r}: {byte}")
            return bool(byte)
        self._bad("a type of values from 0 to 12", f"{name!r} of type {kind}")

    def _array(self, name: str) -> tuple[Any, ...] | None:
        element_type, element_count = self._take("I"), self._take("Q")
        if element_type not in _NUMBERS and element_type not in (_BOOL, _TEXT):
            self._bad("an array of numbers or texts", f"{name!r}, of type {element_type}")
        if element_count > MOST_IN_ARRAY:
            self._bad(f"at most {MOST_IN_ARRAY:,} elements", f"{name!r} of {element_count:,}")
        if element_count <= KEPT or name in self.whole:
            return tuple(self._value(name, element_type) for _ in range(element_count))
        if element_type == _TEXT:
            self._pass_texts(element_count, name)
            return None
        bytes_left = element_count * struct.calcsize("<" + _NUMBERS.get(element_type, "B"))
        while bytes_left:
            step = min(bytes_left, HEADER_PIECE_BYTES)
            self._need(step)
            self._at += step
            bytes_left -= step
        return None

    def _pass_texts(self, count: int, name: str) -> None:
        """Skip texts. Texts that are in memory are skipped without a call for each."""
        length_of = struct.Struct("<Q").unpack_from
        while count:
            header_bytes, position, data_end = self._data, self._at, len(self._data)
            while count and position + 8 <= data_end:
                [length] = length_of(header_bytes, position)
                if length > data_end - position - 8:
                    break
                position += 8 + length
                count -= 1
            self._at = position
            if count:
                self._text_passed(name)
                count -= 1

    def _text_passed(self, name: str) -> None:
        length = self._take("Q")
        if length > LONGEST_TEXT:
            self._bad(f"texts {name!r} of at most {LONGEST_TEXT} bytes", f"a length of {length}")
        self._need(length)
        self._at += length

    def _alignment(self, found: Any) -> int:
        is_allowed_size = type(found) is int and 8 <= found <= LARGEST_ALIGNMENT
        if not is_allowed_size or found & (found - 1):
            self._bad("an alignment that is a power of two from 8 on", repr(found)[:40])
        alignment: int = found
        return alignment

    def _tensor_entry(self) -> tuple[str, tuple[int, ...], int, int]:
        """Return the name, shape, type and offset of a tensor."""
        name = self._text(LONGEST_NAME, "the name of a tensor")
        dimension_count = self._take("I")
        if dimension_count > MOST_DIMENSIONS:
            self._bad(
                f"at most {MOST_DIMENSIONS} dimensions", f"tensor {name!r} with {dimension_count}"
            )
        shape = tuple(self._take("Q") for _ in range(dimension_count))[::-1]
        if math.prod(shape) > MOST_ELEMENTS or max(shape, default=0) > MOST_ELEMENTS:
            self._bad(f"at most {MOST_ELEMENTS:,} elements", f"tensor {name!r}: {list(shape)}")
        return name, shape, self._take("I"), self._take("Q")

    def _tensors(
        self, entries: list[tuple[str, tuple[int, ...], int, int]], begin: int, alignment: int
    ) -> tuple[dict[str, Stored], dict[str, GgufBlocks]]:
        """Return the place of each tensor, and the encoding of the tensors in blocks.

        Args:
            entries: the name, shape, type and offset of each tensor.
            begin: the offset of the data in the file.
            alignment: the alignment of tensors in the file, in bytes.
        """
        tensors, coded_blocks = dict[str, Stored](), dict[str, GgufBlocks]()
        for name, shape, type_code, offset in entries:
            if name in tensors:
                self._bad("each name once", f"tensor {name!r} twice")
            if type_code in PLAIN:
                tensor = Stored(name, PLAIN[type_code], shape, self.file, begin + offset)
            else:
                scheme, block_elements, block_bytes = self._coding(name, type_code)
                if not shape or shape[-1] % block_elements:
                    self._bad(
                        f"rows of whole blocks, each of {block_elements} elements",
                        f"tensor {name!r} in {scheme}, of shape {list(shape)}",
                    )
                packed_shape = (*shape[:-1], shape[-1] // block_elements * block_bytes)
                tensor = Stored(name, "U8", packed_shape, self.file, begin + offset)
                coded_blocks[name] = GgufBlocks(scheme, block_elements, block_bytes, shape)
            tensors[name] = tensor
        end = begin
        for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.nbytes)):
            if tensor.offset != end:
                self._bad(
                    f"tensor {tensor.name!r} at byte {end}",
                    f"byte {tensor.offset}: tensors overlap or leave a hole",
                )
            if tensor.offset + tensor.nbytes > self.size:
                self._bad(
                    f"data within {self.size} bytes",
                    f"tensor {tensor.name!r} at {tensor.offset}..{tensor.offset + tensor.nbytes}: "
                    "the file is truncated, or its header is wrong",
                )
            end += -(-tensor.nbytes // alignment) * alignment
        if self.size > max(end, begin):
            self._bad(f"{end} bytes in the file", f"{self.size} bytes")
        return tensors, coded_blocks

    def _coding(self, name: str, kind: int) -> tuple[str, int, int]:
        if kind in CODED:
            return CODED[kind]
        raise refuse(
            "A tensor has a type that is not read",
            where=f"{self.where}: {name}",
            expected=", ".join([*PLAIN.values(), *(scheme for scheme, _, _ in CODED.values())]),
            found=_NOT_READ.get(kind, f"type {kind}"),
            fix="name the original model, or one that is quantised in another way",
        )
