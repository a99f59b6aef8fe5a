"""pyplot in steps: each step has figures of its own, and ``plt.show()`` puts them into its node.

pyplot keeps one list of open figures and one current figure for the whole process, so steps that draw at once would draw
into each other's figures. Here that list is the current step's own. Outside of steps nothing changes. Settings
(``plt.rcParams``, styles) stay the process's: matplotlib has no others.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
from collections import OrderedDict
from typing import Any

from loom_kernel.authoring.context import in_step

PYPLOT = "matplotlib.pyplot"


class _Figures:
    """Stands in for pyplot's list of open figures: the current step's, or that of everybody else."""

    def __init__(self, others: OrderedDict[Any, Any]) -> None:
        self._others = others

    def _here(self) -> OrderedDict[Any, Any]:
        figures: OrderedDict[Any, Any] | None = getattr(in_step.get(), "figures", None)
        return self._others if figures is None else figures

    def __getitem__(self, number: Any) -> Any:
        return self._here()[number]

    def __setitem__(self, number: Any, manager: Any) -> None:
        self._here()[number] = manager

    def __delitem__(self, number: Any) -> None:
        del self._here()[number]

    def __contains__(self, number: Any) -> bool:
        return number in self._here()

    def __iter__(self) -> Any:
        return iter(self._here())

    def __len__(self) -> int:
        return len(self._here())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._here(), name)


def _patch(pyplot: Any) -> None:
    """Let this pyplot look for its figures in the step that calls it."""
    helpers: Any = sys.modules["matplotlib._pylab_helpers"]
    known = helpers.Gcf.figs
    if isinstance(known, _Figures):
        return
    helpers.Gcf.figs = _Figures(known)
    show_elsewhere, manage_elsewhere = pyplot.show, pyplot.new_figure_manager

    @functools.wraps(show_elsewhere)
    def show(*args: Any, **kwargs: Any) -> Any:
        handle: Any = in_step.get()
        if getattr(handle, "figures", None) is None:
            return show_elsewhere(*args, **kwargs)
        for manager in list(handle.figures.values()):
            handle.show(manager.canvas.figure)
        pyplot.close("all")  # as notebooks do: what was shown is done
        return None

    @functools.wraps(manage_elsewhere)
    def new_figure_manager(num: Any, *args: Any, FigureClass: Any = None, **kwargs: Any) -> Any:
        handle: Any = in_step.get()
        if getattr(handle, "figures", None) is None:
            if FigureClass is not None:
                kwargs["FigureClass"] = FigureClass
            return manage_elsewhere(num, *args, **kwargs)
        # A canvas without a window, whatever the notebook's is: steps run in threads, where windows must not be made.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = (FigureClass or Figure)(*args, **kwargs)
        manager: Any = FigureCanvasAgg.new_manager(figure, num)
        manager.show = lambda: handle.show(figure)
        return manager

    pyplot.show, pyplot.new_figure_manager = show, new_figure_manager


class _Watch(importlib.abc.MetaPathFinder):
    """Sees pyplot coming, which a step may be the first to import."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != PYPLOT:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return None
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            _patch(module)

        loader.exec_module = exec_module
        return spec


_watch = _Watch()


def install() -> None:
    """Give steps their own figures from now on, also where pyplot is imported later. Idempotent."""
    pyplot = sys.modules.get(PYPLOT)
    if pyplot is not None and hasattr(pyplot, "new_figure_manager"):
        _patch(pyplot)
    elif _watch not in sys.meta_path:
        sys.meta_path.insert(0, _watch)


def uninstall() -> None:
    """Watch for pyplot no more. One that was seen keeps working as it does outside of steps."""
    if _watch in sys.meta_path:
        sys.meta_path.remove(_watch)
