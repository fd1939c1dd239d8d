"""The coverage-guided fuzzer on one target, with a directory for its corpus.

`python tests/fuzz/drive.py json CORPUS -max_total_time=60`; options are libFuzzer's. An input
that crashes is written to the current directory as `crash-*` and becomes a seed or a unit test.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
# Only our own code is instrumented, so that the fuzzer maximises its coverage.
with atheris.instrument_imports(include=["hlas", "idna", "jwt"]):
    from fuzz.targets import SEEDS, TARGETS


def main() -> None:
    name, corpus, *options = sys.argv[1:]
    for number, seed in enumerate(SEEDS[name]):
        (Path(corpus) / str(number)).write_bytes(seed)
    atheris.Setup([sys.argv[0], *options, corpus], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
