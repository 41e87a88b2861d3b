"""The canonical text of a row, and its hash. test/gen/hash.go computes the same hash for the record of a row."""

import hashlib

import pyarrow as pa
import pyarrow.compute as pc

NULL = "~"


def tokens(column):
    """Returns the canonical text of each value of an Arrow array, as an array of strings without nulls."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return tokens(column.dictionary_decode())
    if pa.types.is_struct(kind):
        text = _struct(column)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        text = _list(column)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.string())
        length = pc.binary_length(column).cast(pa.string())
        text = pc.binary_join_element_wise('"', length, ":", column, "")
    elif pa.types.is_boolean(kind):
        text = pc.if_else(column, "t", "f")
    elif pa.types.is_integer(kind):
        text = column.cast(pa.string())
    elif pa.types.is_float64(kind):
        text = _prefixed("d", column.view(pa.int64()))
    elif pa.types.is_timestamp(kind):
        if kind.tz is None:
            raise TypeError(f"a timestamp without a time zone: {kind}")
        text = _prefixed("m", column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()))
    elif pa.types.is_date32(kind):
        text = _prefixed("y", column.cast(pa.int32()))
    else:
        raise TypeError(f"no canonical text for {kind}")
    return pc.fill_null(text, NULL)


def _prefixed(prefix, numbers):
    return pc.binary_join_element_wise(prefix, numbers.cast(pa.string()), "")


def _list(column):
    lengths = pc.list_value_length(column)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), _running_sum(lengths)])
    texts = pc.binary_join(pa.ListArray.from_arrays(offsets, tokens(column.flatten())), ",")
    return pc.binary_join_element_wise("[", lengths.cast(pa.string()), ":", texts, "]", "")


def _running_sum(lengths):
    return pc.cumulative_sum(pc.fill_null(lengths, 0)).cast(pa.int32())


def _struct(column):
    fields = sorted(range(column.type.num_fields), key=lambda i: column.type.field(i).name)
    texts = [tokens(pc.struct_field(column, [i])) for i in fields]
    text = pc.binary_join_element_wise("{", pc.binary_join_element_wise(*texts, ","), "}", "")
    return pc.if_else(pc.is_null(column), pa.scalar(None, pa.string()), text)


def hashes(batch):
    """Returns the hash of each row of a record batch, as hexadecimal strings."""
    names = sorted(batch.schema.names)
    rows = pc.binary_join_element_wise(*[tokens(batch.column(name)) for name in names], ",")
    return [hashlib.sha256(row.as_buffer()).hexdigest()[:32] for row in rows]
