"""Devices of others: what programs on them need, and who writes their kernels, under torch's names.

In: classes and records for a type of `torch.device`. Out: registrations that can be taken back. What a device may say of itself stands in `docs/internals/devices.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from attrs import evolve

from flambeau_inductor.codegen.languages import Writer, registered_language
from flambeau_inductor.devices import Device, Language, device_of, has_backend, registered, replaced
from flambeau_inductor.extensions.table import Entry, Registration, checked_uuid
from flambeau_runtime import accelerators, languages

from .defaults import user_errors
from .errors import InvalidOption

__all__ = [
    "Device",
    "DeviceInterface",
    "Language",
    "Writer",
    "register_backend_for_device",
    "register_interface_for_device",
]


class DeviceInterface:
    """What running a program asks of a kind of device of which a machine may have several. Subclass it, with static methods as here.

    `init`: get it ready for its first use in the process. `identity`: what decides the programs that are made for it, a model's name for one: part of the key of graphs there.
    """

    @staticmethod
    def is_available() -> bool:
        """Whether there is one."""
        raise NotImplementedError

    @staticmethod
    def current_device() -> int:
        """The ordinal of the thread's current one."""
        raise NotImplementedError

    @staticmethod
    def synchronize(device: Any = None) -> None:
        """Wait for what is queued."""
        raise NotImplementedError

    @staticmethod
    def init() -> None:
        """Nothing by default."""

    @staticmethod
    def identity() -> str:
        """Empty by default."""
        return ""


def register_interface_for_device(device: str, interface: type[DeviceInterface]) -> DeviceRegistration:
    """Have programs name slots in place of ordinals of a type of device, and ask `interface` for the current one.

    Args:
        device: a type of `torch.device`.
        interface: a subclass of `DeviceInterface`.

    Raises:
        InvalidOption: for no such type or class, a method that is missing, and a type that has an interface.
    """
    _check_type(device)
    if not (isinstance(interface, type) and issubclass(interface, DeviceInterface)):
        raise InvalidOption(f"a subclass of DeviceInterface is registered, not {interface!r}")
    for name in ("is_available", "current_device", "synchronize"):
        if getattr(interface, name) is getattr(DeviceInterface, name):
            raise InvalidOption(f"{interface.__qualname__} has no {name}()")
    accelerator = accelerators.Accelerator(
        type=device,
        is_available=interface.is_available,
        start=interface.init,
        current=interface.current_device,
        synchronize=interface.synchronize,
        identity=interface.identity,
    )
    return DeviceRegistration(lambda stack: stack.enter_context(accelerators.registered(accelerator)))


def register_backend_for_device(
    device: str,
    language: Language,
    writer: Writer,
    *,
    record: Device | None = None,
    runtime: languages.Language | None = None,
    uuid: str | None = None,
) -> DeviceRegistration:
    """Have the kernels for a type of device written by `writer`.

    Args:
        device: a type of `torch.device`; "cpu" and "cuda" may be taken over.
        language: what stages before code generation know of the kernels' language; its name is new.
        writer: the functions that write kernels.
        record: what all stages ask of the device; without one, the record of a device that has one, in the new language, else one of defaults.
        runtime: how kernels in this language become functions; without one, the C++ compiler builds their text.
        uuid: a text that changes with what the writer does; without one no graph is kept on disk meanwhile.

    Raises:
        InvalidOption: for records that do not fit each other, and a language or device that is registered.
    """
    _check_type(device)
    place = torch.device(device)
    if record is None:
        known = device_of(place) if has_backend(place) else Device(type=device, language=_in(language), enabled=_always)
        record = evolve(known, language=_in(language), enabled=_always)
    if record.type != device:
        raise InvalidOption(f"the record is of {record.type!r}, not of {device!r}")
    runtime = runtime or languages.Language(name=language.name)
    if runtime.name != language.name:
        raise InvalidOption(f"the language is {language.name!r} in the compiler and {runtime.name!r} in the runtime")
    with user_errors():
        entry = Entry("backend for", f"{device} in {language.name}", checked_uuid(uuid), writer)
    own = record

    def enter(stack: ExitStack) -> None:
        stack.enter_context(registered_language(language, writer))
        stack.enter_context(languages.registered(runtime))
        stack.enter_context((replaced if has_backend(place) else registered)(own))
        with user_errors():
            stack.enter_context(Registration.of(entry))

    return DeviceRegistration(enter)


class DeviceRegistration:
    """What is registered of a device: `remove()`, or a `with` block, takes it back."""

    def __init__(self, enter: Callable[[ExitStack], Any]) -> None:
        with ExitStack() as stack:
            try:
                enter(stack)
            except ValueError as error:
                raise InvalidOption(str(error)) from None
            self._stack = stack.pop_all()

    def remove(self) -> None:
        """Take it back; a second time does nothing."""
        self._stack.close()

    def __enter__(self) -> DeviceRegistration:
        return self

    def __exit__(self, *details: object) -> None:
        self.remove()


def _check_type(device: Any) -> None:
    try:
        torch.device(device)
    except (RuntimeError, TypeError):
        raise InvalidOption(
            f"{device!r} is no type of torch.device",
            "torch's spare type is 'privateuseone', which a program may rename",
        ) from None
    if not isinstance(device, str) or torch.device(device).type != device:
        raise InvalidOption(f"a type of device is a text without an ordinal, not {device!r}")


def _in(language: Language) -> Callable[[Any], Language]:
    return lambda config: language


def _always(config: Any) -> bool:
    return True
