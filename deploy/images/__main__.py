"""Builds images: `python -m deploy.images [NAME ...]`; `--pin` renews the lock of Debian packages."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from deploy.images import debian
from deploy.images.build import Builder
from deploy.images.catalogue import DEBIAN, IMAGES

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Build the named images, or all, into build/images."""
    parser = argparse.ArgumentParser(prog="python -m deploy.images", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(image.name for image in IMAGES))
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "images")
    parser.add_argument("--pin", action="store_true", help="pin the Debian packages that the mirror offers")
    options = parser.parse_args()
    if options.pin:
        debian.LOCK.write_text(debian.pin(DEBIAN))
        return 0
    if unknown := set(options.names) - {image.name for image in IMAGES}:
        parser.error(f"no image is named {', '.join(sorted(unknown))}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolmesh" / "images"
    options.output.mkdir(parents=True, exist_ok=True)
    builder = Builder(ROOT, options.output / "work", cache)
    for image in IMAGES:
        if not options.names or image.name in options.names:
            start, target = time.monotonic(), options.output / f"{image.name}.tar"
            digest = builder.build(image, target)
            size = target.stat().st_size / 1e6
            sys.stdout.write(f"  {image.name:9} {size:6.0f} MB  {digest}  {time.monotonic() - start:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
