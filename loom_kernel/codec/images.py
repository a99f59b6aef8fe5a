"""Figures and pictures as values: what was drawn is kept, not what drew it.

A matplotlib figure cannot be taken apart and put together again, so a step that returns one gives an :class:`Image` to the
body, the first time and after a restart alike. Figures of plotly and altair keep their JSON beside a picture, where the
library can make one without a browser. No library is imported here: whoever made the figure has imported it.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import struct
import sys
import threading
from pathlib import Path
from typing import Any

from loom_kernel.codec_tables.refusal import Refused
from loom_kernel.errors import LoomError, ValueNotStorableError

PNG = "image/png"
PLOTLY = "application/vnd.plotly.v1+json"

SMALL_BYTES = 48_000
"""A picture shown beside a step is at most this large."""

_drawing = threading.Lock()  # two figures drawn at once would share matplotlib's settings for saving


class Image:
    """A picture as the journal keeps it. Equal when its contents are.

    Attributes:
        data: the contents: PNG bytes, or the figure's JSON for plotly and altair.
        media_type: what ``data`` is, such as ``"image/png"``.
        of: the library that drew it: ``"matplotlib"``, ``"PIL"``, ``"plotly"``, ``"altair"``.
        png: the picture as PNG bytes; None where nothing here could draw it.
        width, height: of the picture in pixels; 0 where there is none.
    """

    __slots__ = ("data", "height", "media_type", "of", "png", "width")

    def __init__(self, data: bytes, *, media_type: str = PNG, of: str = "", png: bytes | None = None) -> None:
        self.data, self.media_type, self.of = data, media_type, of
        self.png = data if media_type == PNG else png
        self.width, self.height = _size(self.png)

    def save(self, path: str | Path) -> None:
        """Write the picture, or the JSON where there is none, to a file."""
        Path(path).write_bytes(self.png if self.png is not None else self.data)

    def pil(self) -> Any:
        """The picture as a ``PIL.Image``.

        Raises:
            LoomError: there is no picture, only JSON.
        """
        if self.png is None:
            raise LoomError(f"this {self.of} figure was kept as JSON only, without a picture; see Image.data")
        return importlib.import_module("PIL.Image").open(io.BytesIO(self.png))

    def small(self, most: int = SMALL_BYTES) -> bytes | None:
        """The picture as PNG of at most ``most`` bytes, made smaller where need be; None where that cannot be done."""
        if self.png is None or len(self.png) <= most:
            return self.png
        if importlib.util.find_spec("PIL") is None:
            return None
        picture = self.pil().convert("RGB")
        for edge in (800, 480, 280, 160):
            picture.thumbnail((edge, edge))
            out = io.BytesIO()
            (picture.quantize(128) if edge < 800 else picture).save(out, format="PNG", optimize=True)
            if out.tell() <= most:
                return out.getvalue()
        return None

    def _repr_png_(self) -> bytes | None:
        return self.png

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        import base64

        bundle: dict[str, Any] = {"text/plain": repr(self)}
        if self.png is not None:
            bundle[PNG] = base64.b64encode(self.png).decode()
        if self.media_type.endswith("+json"):
            bundle[self.media_type] = json.loads(self.data)  # data for a viewer that knows it, never markup
        return bundle

    def __repr__(self) -> str:
        size = f"{self.width} × {self.height}" if self.png is not None else f"{len(self.data):,} bytes of JSON"
        return f"Image({self.of + ', ' if self.of else ''}{size})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Image):
            return NotImplemented
        return (self.data, self.media_type) == (other.data, other.media_type)

    def __hash__(self) -> int:
        return hash((self.data, self.media_type))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"a figure is kept as a picture, which has no {name!r}: draw in the step and return the figure when it is done"
        )


def _size(png: bytes | None) -> tuple[int, int]:
    if png is None or png[:8] != b"\x89PNG\r\n\x1a\n" or len(png) < 24:
        return 0, 0
    width, height = struct.unpack(">II", png[16:24])
    return width, height


# ---------------------------------------------------------------- from figures


def is_figure(cls: type) -> bool:
    """Whether values of ``cls`` are figures or pictures of another library."""
    return _maker(cls) is not None


def image_of(value: Any) -> Image:
    """What is kept of a figure or picture.

    Raises:
        Refused: it cannot be drawn.
    """
    make = _maker(type(value))
    assert make is not None
    try:
        image: Image = make(value)
    except Refused:
        raise
    except Exception as error:
        raise Refused(
            f"{type(value).__name__} that cannot be drawn ({type(error).__name__}: {error})",
            "Try to save it to a file first; the library says what is wrong.",
        ) from error
    return image


def picture(value: Any, *, path: str = "figure") -> Image:
    """:func:`image_of` with the error that people see.

    Raises:
        ValueNotStorableError: it is no figure, or cannot be drawn.
    """
    if isinstance(value, Image):
        return value
    if not is_figure(type(value)):
        raise ValueNotStorableError(path, type(value).__name__, "It is neither a figure nor a picture.")
    try:
        return image_of(value)
    except Refused as refused:
        raise ValueNotStorableError(refused.path(path), refused.kind, refused.hint) from refused


def _class(module: str, name: str) -> type | None:
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def _maker(cls: type) -> Any:
    for module, name, make in _FIGURES:
        base = _class(module, name)
        if base is not None and issubclass(cls, base):
            return make
    return None


def _matplotlib(figure: Any) -> Image:
    root = figure
    while (above := getattr(root, "figure", None)) is not None and above is not root:
        root = above  # an axes or a part of a figure: the whole is the picture
    out = io.BytesIO()
    with _drawing:
        root.savefig(out, format="png", bbox_inches="tight", metadata={"Software": None})
    return Image(out.getvalue(), of="matplotlib")


def _pil(picture: Any) -> Image:
    out = io.BytesIO()
    try:
        picture.save(out, format="PNG")
    except OSError:  # a colour space that PNG does not have
        out = io.BytesIO()
        picture.convert("RGBA" if "A" in picture.mode else "RGB").save(out, format="PNG")
    return Image(out.getvalue(), of="PIL")


def _plotly(figure: Any) -> Image:
    png: bytes | None = None
    if importlib.util.find_spec("kaleido") is not None:
        try:
            png = figure.to_image(format="png")
        except Exception:
            png = None  # it wants a browser that is not here
    return Image(figure.to_json().encode(), media_type=PLOTLY, of="plotly", png=png)


def _altair(chart: Any) -> Image:
    spec = chart.to_json(indent=None)
    version = str(getattr(sys.modules.get("altair"), "VEGALITE_VERSION", "6")).partition(".")[0].removeprefix("v")
    png: bytes | None = None
    if importlib.util.find_spec("vl_convert") is not None:
        try:
            png = importlib.import_module("vl_convert").vegalite_to_png(spec)
        except Exception:
            png = None
    return Image(spec.encode(), media_type=f"application/vnd.vegalite.v{version}+json", of="altair", png=png)


_FIGURES: tuple[tuple[str, str, Any], ...] = (
    ("matplotlib.figure", "FigureBase", _matplotlib),
    ("matplotlib.axes", "Axes", _matplotlib),
    ("seaborn.axisgrid", "_BaseGrid", _matplotlib),
    ("PIL.Image", "Image", _pil),
    ("plotly.basedatatypes", "BaseFigure", _plotly),
    ("altair.vegalite.v6.api", "TopLevelMixin", _altair),
    ("altair.vegalite.v5.api", "TopLevelMixin", _altair),
)
