"""Values as the journal keeps them: each comes back as the type it was, or is refused with the path of the culprit."""

from __future__ import annotations

from loom_kernel.codec.failures import decode_error, encode_error, rebuildable
from loom_kernel.codec.forms import BLOB_BYTES, MAX_BYTES, Blob, Encoded, SecretDigest, Unkept
from loom_kernel.codec.hashing import content_hash
from loom_kernel.codec.images import Image, picture
from loom_kernel.codec.previewing import preview
from loom_kernel.codec.reading import decode, decode_now, references
from loom_kernel.codec.writing import digest, encode

__all__ = [
    "BLOB_BYTES",
    "MAX_BYTES",
    "Blob",
    "Encoded",
    "Image",
    "SecretDigest",
    "Unkept",
    "content_hash",
    "decode",
    "decode_error",
    "decode_now",
    "digest",
    "encode",
    "encode_error",
    "picture",
    "preview",
    "rebuildable",
    "references",
]
