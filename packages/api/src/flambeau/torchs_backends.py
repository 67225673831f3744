"""Backends that torch.compile knows by name and other packages bring: found where they are installed, with capture by flambeau.

In: a name. Out: the backend; or an error that says what to install. What a package registers with torch's registry when it is imported is read from
there. That registry belongs to torch.compile's front end: it is looked into where the program or such a package has loaded it, and loaded
for a backend of that front end that the program names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from typing import Any

from attrs import frozen

_REGISTRY = "torch._dynamo.backends.registry"


@frozen
class Provider:
    """Where a backend comes from.

    Attributes:
        package: the importable package that it needs.
        install: what to install for it.
        module: what is imported to have it registered with torch's registry; by default the package.
        entry: "module:name" of the backend itself, where it is not registered by that name.
    """

    package: str
    install: str
    module: str = ""
    entry: str = ""


PROVIDERS: Mapping[str, Provider] = {
    "openvino": Provider("openvino", "openvino", "openvino.torch"),
    "tensorrt": Provider("torch_tensorrt", "torch-tensorrt"),
    "torch_tensorrt": Provider("torch_tensorrt", "torch-tensorrt"),
    "hidet": Provider("hidet", "hidet"),
    "ipex": Provider("intel_extension_for_pytorch", "intel-extension-for-pytorch"),
    "onnxrt": Provider("onnxruntime", "onnxruntime", entry="torch.onnx:_OrtBackend"),
    "tvm": Provider("tvm", "apache-tvm", entry="torch._dynamo.backends.tvm:tvm"),
    "openxla": Provider("torch_xla", "torch_xla", entry="torch._dynamo.backends.torchxla:openxla"),
}
"""Name -> who brings it."""


def registered() -> Mapping[str, Callable[..., Any] | None]:
    """Name -> backend (None: published and not loaded yet) of torch's registry, where something has loaded that."""
    registry = sys.modules.get(_REGISTRY)
    return {} if registry is None else {**registry._BACKENDS, **registry._COMPILER_FNS}


def names(exclude_tags: Iterable[str] = ()) -> list[str]:
    """The backends of others that can be named now: those that somebody registered with torch's registry, and those whose package is installed."""
    excluded = frozenset(exclude_tags)
    found = {
        name
        for name, backend in registered().items()
        if backend is not None and not _is_torchs_own(backend) and excluded.isdisjoint(getattr(backend, "_tags", ()))
    }
    return sorted(found | {name for name, provider in PROVIDERS.items() if find_spec(provider.package) is not None})


def find(name: str) -> Callable[..., Any] | None:
    """The backend of that name that somebody else brings, or None.

    Raises:
        ImportError: where its package is not installed, or fails to import.
    """
    backend = registered().get(name)
    if backend is not None and not _is_torchs_own(backend):
        return backend
    provider = PROVIDERS.get(name)
    if provider is None:
        return None
    if find_spec(provider.package) is None:
        raise ImportError(f"it is not installed: pip install {provider.install}")
    if provider.entry:
        try:
            made: Callable[..., Any] = EntryPoint(name, provider.entry, "torch_dynamo_backends").load()
        except AttributeError:
            raise ImportError(f"the torch that is installed has no {provider.entry}") from None
        return made
    import_module(provider.module or provider.package)
    return registered().get(name)


def _is_torchs_own(backend: Callable[..., Any]) -> bool:
    """Whether it is one that torch brings itself, which compile for torch's own capture."""
    # What torch's `aot_autograd` makes is a class of torch's around a compiler of somebody.
    maker = getattr(backend, "kwargs", {}).get("fw_compiler", backend)
    module = getattr(maker, "__module__", None) or type(maker).__module__
    return module.partition(".")[0] == "torch"
