"""Benchmarks of reading and generating: the native_functions.yaml that comes with PyTorch, against torchgen."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from dispatchlab.codegen.emit.generate import generated_files
from dispatchlab.codegen.read.native_functions import read_native_functions, read_tags


def native_folder() -> Path:
    """Where the installed torchgen keeps its files.

    Raises:
        NotImplementedError: torchgen is not installed, which makes asv skip.
    """
    spec = find_spec("torchgen")
    if spec is None or spec.origin is None:
        raise NotImplementedError("torchgen is not installed")
    return Path(spec.origin).parent / "packaged" / "ATen" / "native"


class Reading:
    """A file to values."""

    def setup(self) -> None:
        folder = native_folder()
        self.data = (folder / "native_functions.yaml").read_bytes()
        self.tags = read_tags((folder / "tags.yaml").read_bytes(), "tags.yaml")
        self.natives = read_native_functions(self.data, tags=self.tags)
        assert len(self.natives.functions) > 3000
        assert len(self.natives.structured_groups) > 250

    def time_read(self) -> None:
        """The file as values, every rule checked."""
        assert len(read_native_functions(self.data, tags=self.tags).functions) == len(self.natives.functions)

    def time_generate(self) -> None:
        """All modules and scenarios as text."""
        assert len(generated_files(self.natives, file="f")) == 2 * len(self.natives.structured_groups) + 1

    def track_part_of_torchgens_time(self) -> float:
        """How much of torchgen's time reading takes; the best of five each, in turns."""
        return part_of_torchgens_time()

    track_part_of_torchgens_time.unit = "torchgen"  # type: ignore[attr-defined]


def part_of_torchgens_time(rounds: int = 5) -> float:
    """The best time of reading as a part of torchgen's best time, measured in turns in this process."""
    import torchgen.gen as gen  # type: ignore[import-not-found, import-untyped, unused-ignore]

    folder = native_folder()
    path, tags_path = folder / "native_functions.yaml", folder / "tags.yaml"
    mine, theirs = [], []
    for _ in range(rounds):
        gen._GLOBAL_PARSE_NATIVE_YAML_CACHE.clear()
        gen._GLOBAL_PARSE_TAGS_YAML_CACHE.clear()
        gen.parse_tags_yaml.cache_clear()
        start = perf_counter()
        parsed: Any = gen.parse_native_yaml(str(path), str(tags_path))
        grouped = gen.get_grouped_native_functions(parsed.native_functions)
        theirs.append(perf_counter() - start)
        start = perf_counter()
        tags = read_tags(tags_path.read_bytes(), str(tags_path))
        natives = read_native_functions(path.read_bytes(), file=str(path), tags=tags)
        mine.append(perf_counter() - start)
        assert len(natives.functions) == len(parsed.native_functions)
        assert len(natives.groups) == len(grouped)
    return min(mine) / min(theirs)


if __name__ == "__main__":
    print(f"{part_of_torchgens_time():.2f} of torchgen's time")  # noqa: T201
