"""Build hook: compiles the native module through `tools/build_native.py` when a wheel is made."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface):
    """Adds `_C` to a wheel; the tool lies in the repository's `tools`, or at the root of an sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        package = Path(self.root)
        places = [package, package.parent.parent / "tools"]
        sys.path[:0] = [str(place) for place in places if (place / "build_native.py").is_file()]
        import build_native

        if version == "editable":
            build_native.build(package, together=True)
            return
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        output = package / "build" / f"_C{suffix}"
        output.parent.mkdir(exist_ok=True)
        if build_native.build(package, output, together=True) is not None:
            inside = f"flambeau_{build_native.package_name(package)}/_C{suffix}"
            build_data["force_include"][str(output)] = inside
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
